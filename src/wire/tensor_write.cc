// Tensors to bytes.
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <utility>

#include "wire/sparse.h"
#include "wire/tensor_table.h"

namespace gradwire::wire {
namespace {

using c10::DispatchKey;

constexpr size_t kRecordBytes = 16;  // of a strided tensor, before sizes and strides
constexpr size_t kStorageBytes = 9;  // before its bytes
constexpr size_t kTableBytes = 8;    // the two counts
constexpr size_t kSparseBytes = 4;   // before the sizes
constexpr int64_t kMaxDim = 255;

// The tensors that are known here. Wrappers (of vmap, functionalization, a __torch_dispatch__ class) have other keys:
// sent as they are, they would arrive as something else.
constexpr c10::DispatchKeySet kKnownKeys = c10::DispatchKeySet(
    {DispatchKey::CPU, DispatchKey::Meta, DispatchKey::QuantizedCPU, DispatchKey::SparseCPU, DispatchKey::SparseCsrCPU,
     DispatchKey::AutogradCPU, DispatchKey::AutogradMeta, DispatchKey::ADInplaceOrView, DispatchKey::Conjugate,
     DispatchKey::Negative, DispatchKey::AutocastCPU});

bool IsKnown(const at::Tensor& tensor) { return (tensor.key_set().raw_repr() & ~kKnownKeys.raw_repr()) == 0; }

[[noreturn]] void Refuse(const at::Tensor& tensor) {
  std::ostringstream text;
  const c10::Device device = tensor.device();
  if (tensor.unsafeGetTensorImpl()->is_python_dispatch()) {
    text << "a tensor subclass with __torch_dispatch__ cannot travel as a tensor; send its parts";
  } else if (tensor.key_set().has(DispatchKey::NestedTensor)) {
    text << "a nested tensor cannot travel; send the tensors that tensor.unbind() gives";
  } else if (!device.is_cpu() && !device.is_meta()) {
    text << "a tensor on " << device << " cannot travel without a device map; send tensor.cpu() instead";
  } else {
    text << "a tensor of layout " << tensor.layout() << " on " << device << " with " << tensor.key_set()
         << " cannot travel; send a plain one (tensor.to_dense(), tensor.clone())";
  }
  ThrowInvalid(text.str());
}

TensorKind KindOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return TensorKind::kUndefined;
  if (!IsKnown(tensor) || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) Refuse(tensor);
  const bool quantized = tensor.is_quantized();
  if (quantized != c10::isQIntType(tensor.scalar_type()) || (quantized && (tensor.is_neg() || tensor.is_conj()))) {
    Refuse(tensor);
  }
  if (tensor.device().is_meta()) {
    if (tensor.layout() != c10::kStrided || quantized) Refuse(tensor);
    return TensorKind::kMeta;
  }
  switch (tensor.layout()) {
    case c10::kStrided: break;
    case c10::kSparse: return TensorKind::kCoo;
    case c10::kSparseCsr: return TensorKind::kCsr;
    case c10::kSparseCsc: return TensorKind::kCsc;
    case c10::kSparseBsr: return TensorKind::kBsr;
    case c10::kSparseBsc: return TensorKind::kBsc;
    default: Refuse(tensor);
  }
  if (!quantized) return TensorKind::kStrided;
  switch (at::get_qtensorimpl(tensor)->quantizer()->qscheme()) {
    case c10::kPerTensorAffine: return TensorKind::kPerTensor;
    case c10::kPerChannelAffine:
    case c10::kPerChannelAffineFloatQParams: return TensorKind::kPerChannel;
    default: ThrowInvalid("a quantized tensor without a quantization scheme cannot travel");
  }
}

bool HasStorage(TensorKind kind) {
  return kind == TensorKind::kStrided || kind == TensorKind::kPerTensor || kind == TensorKind::kPerChannel;
}

const at::PerChannelAffineQuantizer& PerChannel(const at::Tensor& tensor) {
  return static_cast<const at::PerChannelAffineQuantizer&>(*at::get_qtensorimpl(tensor)->quantizer());
}

std::string_view AsBytes(c10::IntArrayRef numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

// The storage's bytes [begin, begin + size), by reference.
BulkSource Share(const c10::Storage& storage, uint64_t begin, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(storage.data()) + begin;
  if (c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) {
    // Its memory belongs to others too, and holding the storage does not hold it: a writer may replace it.
    std::shared_ptr<std::byte[]> copy(new std::byte[size]);
    std::memcpy(copy.get(), bytes, size);
    return {.data = copy.get(), .size = size, .keep = copy};
  }
  return {.data = bytes, .size = size, .keep = std::make_shared<c10::Storage>(storage)};
}

}  // namespace

TensorTableWriter::TensorTableWriter(const std::vector<at::Tensor>& tensors, size_t inline_limit)
    : count_(static_cast<uint32_t>(tensors.size())), inline_limit_(inline_limit), byte_size_(kTableBytes) {
  if (tensors.size() > std::numeric_limits<uint32_t>::max()) ThrowInvalid("more than 4 Gi tensors in one message");
  try {
    for (const at::Tensor& tensor : tensors) Add(c10::MaybeOwned<at::Tensor>::borrowed(tensor));
  } catch (const c10::Error& error) {
    ThrowInvalid(std::string("a tensor cannot travel: ") + error.what_without_backtrace());
  }
  groups_ = JoinRanges({ranges_.data(), ranges_.size()});
  for (const ByteRange& group : groups_) {
    const size_t size = group.end - group.begin;
    byte_size_ += kStorageBytes + (size < inline_limit_ ? size : 0);
  }
}

void TensorTableWriter::Add(c10::MaybeOwned<at::Tensor> owned) {
  const at::Tensor& tensor = *owned;
  Node node;
  node.kind = KindOf(tensor);
  if (node.kind == TensorKind::kUndefined) {
    byte_size_ += sizeof(TensorKind);
    nodes_.push_back(std::move(node));
    return;
  }
  if (tensor._fw_grad(0).defined()) {
    ThrowInvalid(
        "a dual tensor of forward-mode differentiation cannot travel, as its tangent would be lost; send the two that "
        "torch.autograd.forward_ad.unpack_dual(tensor) gives");
  }
  if (tensor.requires_grad()) node.flags |= flag::kRequiresGrad;
  if (tensor.is_conj()) node.flags |= flag::kConj;
  if (tensor.is_neg()) node.flags |= flag::kNeg;
  if (tensor.dim() > kMaxDim) ThrowInvalid("a tensor of more than 255 dimensions cannot travel");

  if (node.kind >= TensorKind::kCoo) return AddSparse(tensor, std::move(node), std::move(owned));
  byte_size_ += kRecordBytes + 2 * sizeof(int64_t) * static_cast<size_t>(tensor.dim());
  AddRange(tensor, node);
  if (node.kind == TensorKind::kPerTensor) byte_size_ += sizeof(double) + sizeof(int64_t);
  if (node.kind != TensorKind::kPerChannel) {
    node.tensor = std::move(owned);
    nodes_.push_back(std::move(node));
    return;
  }
  byte_size_ += sizeof(uint8_t);
  const at::PerChannelAffineQuantizer& quantizer = PerChannel(tensor);
  node.tensor = std::move(owned);
  nodes_.push_back(std::move(node));
  AddPart(quantizer.scales());
  AddPart(quantizer.zero_points());
}

void TensorTableWriter::AddSparse(const at::Tensor& tensor, Node node, c10::MaybeOwned<at::Tensor> owned) {
  SparseParts parts = TakeApart(tensor);
  // The receiver refuses what breaks the rules of its layout, and with it the connection: say so here.
  CheckShapes(parts);
  CheckIndices(parts);
  if (parts.coalesced) node.flags |= flag::kCoalesced;
  node.sparse_dim = static_cast<uint8_t>(parts.sparse_dim);
  byte_size_ += kSparseBytes + sizeof(int64_t) * parts.sizes.size();
  node.tensor = std::move(owned);
  nodes_.push_back(std::move(node));
  for (at::Tensor* part : {&parts.first, &parts.second, &parts.values}) {
    if (part->defined()) AddPart(std::move(*part));
  }
}

void TensorTableWriter::AddPart(at::Tensor part) {
  if (part.layout() != c10::kStrided || !part.device().is_cpu() || part.is_quantized()) Refuse(part);
  Add(c10::MaybeOwned<at::Tensor>::owned(std::move(part)));
  nodes_.back().flags &= static_cast<uint8_t>(~flag::kRequiresGrad);  // only the whole is part of a graph
}

void TensorTableWriter::AddRange(const at::Tensor& tensor, Node& node) {
  const auto covered = static_cast<uint64_t>(CoveredElements(tensor.sizes(), tensor.strides()));
  const uint64_t bits = BitsPerElement(tensor.scalar_type());
  const auto offset = static_cast<uint64_t>(tensor.storage_offset());
  const uint64_t end = EndByte(offset, covered, bits);
  if (!HasStorage(node.kind) || covered == 0) return;
  const c10::Storage& storage = tensor.storage();
  if (end > storage.nbytes() || storage.data() == nullptr) {
    ThrowInvalid("a tensor whose storage was resized to " + std::to_string(storage.nbytes()) +
                 " bytes and does not hold it cannot travel");
  }
  node.has_range = true;
  node.range = static_cast<uint32_t>(ranges_.size());
  ranges_.push_back({.storage = storage.unsafeGetStorageImpl(),
                     .begin = offset * bits / 8,
                     .end = end,
                     .alignment = static_cast<uint32_t>(std::max<uint64_t>(bits / 8, 1))});
  storages_.push_back(&storage);
}

void TensorTableWriter::Write(std::string& out, std::vector<BulkSource>& bulk) const {
  Append(out, static_cast<uint32_t>(groups_.size()), count_);
  WriteStorages(out, bulk);
  for (const Node& node : nodes_) WriteRecord(node, out);
}

void TensorTableWriter::WriteStorages(std::string& out, std::vector<BulkSource>& bulk) const {
  uint32_t next = 0;  // groups are numbered in order of first appearance
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].group != next) continue;
    const ByteRange& group = groups_[next++];
    const size_t size = group.end - group.begin;
    const c10::Storage& storage = *storages_[i];
    const bool apart = size >= inline_limit_;
    Append(out, static_cast<uint64_t>(size), static_cast<uint8_t>(apart));
    if (apart) {
      bulk.push_back(Share(storage, group.begin, size));
    } else {
      out.append(static_cast<const char*>(storage.data()) + group.begin, size);
    }
  }
}

void TensorTableWriter::WriteRecord(const Node& node, std::string& out) const {
  if (node.kind == TensorKind::kUndefined) return Append(out, node.kind);
  const at::Tensor& tensor = *node.tensor;
  const c10::IntArrayRef sizes = tensor.sizes();
  const auto dim = static_cast<uint8_t>(sizes.size());
  if (node.kind >= TensorKind::kCoo) {
    Append(out, node.kind, node.flags, dim, node.sparse_dim);
    out.append(AsBytes(sizes));
    return;
  }
  uint32_t storage = kNoStorage;
  uint64_t offset = 0;
  if (node.has_range) {
    storage = ranges_[node.range].group;
    offset = static_cast<uint64_t>(tensor.storage_offset()) -
             groups_[storage].begin * 8 / BitsPerElement(tensor.scalar_type());
  } else if (node.kind == TensorKind::kMeta) {
    offset = static_cast<uint64_t>(tensor.storage_offset());
  }
  Append(out, node.kind, node.flags, static_cast<uint8_t>(tensor.scalar_type()), dim, storage, offset);
  out.append(AsBytes(sizes));
  out.append(AsBytes(tensor.strides()));
  if (node.kind == TensorKind::kPerTensor) {
    const auto quantizer = at::get_qtensorimpl(tensor)->quantizer();
    const auto& affine = static_cast<const at::PerTensorAffineQuantizer&>(*quantizer);
    Append(out, affine.scale(), affine.zero_point());
  } else if (node.kind == TensorKind::kPerChannel) {
    Append(out, static_cast<uint8_t>(PerChannel(tensor).axis()));
  }
}

}  // namespace gradwire::wire
