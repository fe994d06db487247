// Bytes to tensors.
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "wire/sparse.h"
#include "wire/tensor_table.h"
#include "wire/views.h"

namespace gradwire::wire {
namespace {

using Numbers = c10::SmallVector<int64_t, 8>;

constexpr size_t kLeastRecordBytes = 1;
constexpr size_t kLeastStorageBytes = 9;

c10::Storage MakeStorage(size_t size, c10::Allocator* allocator) {
  return c10::Storage(c10::Storage::use_byte_size_t(), size, allocator, /*resizable=*/true);
}

at::DataPtr NoMemory() { return {nullptr, c10::Device(c10::kCPU)}; }

Numbers ReadNumbers(Cursor& in, size_t count) {
  const std::string_view bytes = in.Bytes(count * sizeof(int64_t));
  Numbers numbers(count);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

class TableReader {
 public:
  TableReader(Cursor& in, size_t max_bulk)
      : in_(in), max_bulk_(std::min<size_t>(max_bulk, std::numeric_limits<int64_t>::max())) {}

  std::vector<at::Tensor> Read(std::vector<BulkTarget>& targets) {
    const auto storages = in_.Get<uint32_t>();
    const auto tensors = in_.Get<uint32_t>();
    if (storages > in_.remaining() / kLeastStorageBytes || tensors > in_.remaining() / kLeastRecordBytes) {
      ThrowInvalid("message announces " + std::to_string(storages) + " storages and " + std::to_string(tensors) +
                   " tensors but has only " + std::to_string(in_.remaining()) + " bytes left");
    }
    storages_.reserve(storages);
    for (uint32_t i = 0; i < storages; ++i) ReadStorage(targets);
    std::vector<at::Tensor> result;
    result.reserve(tensors);
    for (uint32_t i = 0; i < tensors; ++i) result.push_back(ReadTensor());
    RelateViews(result);
    for (const at::Tensor& tensor : requiring_grad_) tensor.set_requires_grad(true);
    return result;
  }

  size_t bulk_bytes() const { return bulk_; }

 private:
  void ReadStorage(std::vector<BulkTarget>& targets) {
    const auto size = in_.Get<uint64_t>();
    if (size == 0) ThrowInvalid("storage without bytes");
    if (in_.Flag()) {
      if (size > max_bulk_ - bulk_) ThrowInvalid("message announces more than " + std::to_string(max_bulk_) + " bytes");
      bulk_ += size;
      c10::Storage storage(c10::Storage::use_byte_size_t(), size, NoMemory(), c10::GetCPUAllocator(),
                           /*resizable=*/true);
      targets.push_back(
          {.data = nullptr, .size = size, .keep = std::make_shared<c10::Storage>(storage), .storage = storage});
      storages_.push_back(std::move(storage));
      return;
    }
    const std::string_view bytes = in_.Bytes(size);
    storages_.push_back(MakeStorage(size, c10::GetCPUAllocator()));
    std::memcpy(storages_.back().mutable_data(), bytes.data(), size);
  }

  at::Tensor ReadTensor() {
    const auto kind = in_.Get<TensorKind>();
    switch (kind) {
      case TensorKind::kUndefined: return {};
      case TensorKind::kStrided:
      case TensorKind::kMeta: return ReadDense(kind, flag::kRequiresGrad | flag::kConj | flag::kNeg);
      case TensorKind::kPerTensor:
      case TensorKind::kPerChannel: return ReadDense(kind, 0);  // libtorch recurses without end on a negated one
      case TensorKind::kCoo:
      case TensorKind::kCsr:
      case TensorKind::kCsc:
      case TensorKind::kBsr:
      case TensorKind::kBsc: return ReadSparse(kind);
    }
    ThrowInvalid("tensor of unknown kind " + std::to_string(static_cast<int>(kind)));
  }

  // A part of a quantized or sparse tensor: strided, without flags but for those allowed.
  at::Tensor ReadPart(uint8_t allowed_flags = 0) {
    if (in_.Get<TensorKind>() != TensorKind::kStrided) ThrowInvalid("a part of a tensor is not strided");
    return ReadDense(TensorKind::kStrided, allowed_flags);
  }

  at::Tensor ReadDense(TensorKind kind, uint8_t allowed_flags) {
    const auto flags = in_.Get<uint8_t>();
    const c10::ScalarType dtype = CheckDtype(in_.Get<uint8_t>());
    const auto dim = in_.Get<uint8_t>();
    const auto index = in_.Get<uint32_t>();
    const auto offset = in_.Get<uint64_t>();
    const Numbers sizes = ReadNumbers(in_, dim);
    const Numbers strides = ReadNumbers(in_, dim);
    if ((flags & ~allowed_flags) != 0) ThrowInvalid("tensor with flags that it cannot have");
    if ((flags & flag::kConj) != 0 && !c10::isComplexType(dtype)) ThrowInvalid("conjugate of a real tensor");
    const bool quantized = kind == TensorKind::kPerTensor || kind == TensorKind::kPerChannel;
    if (quantized != c10::isQIntType(dtype)) {
      ThrowInvalid("quantized tensor of another dtype, or the reverse");
    }

    const auto covered = static_cast<uint64_t>(CoveredElements(sizes, strides));
    const uint64_t end = EndByte(offset, covered, BitsPerElement(dtype));
    c10::Storage storage = StorageFor(kind, index, covered, end, offset);
    at::Tensor tensor =
        quantized ? MakeQuantized(kind, std::move(storage), dtype, sizes)
                  : at::detail::make_tensor<c10::TensorImpl>(
                        std::move(storage),
                        c10::DispatchKeySet(kind == TensorKind::kMeta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU),
                        c10::scalarTypeToTypeMeta(dtype));
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(sizes, strides, static_cast<int64_t>(offset));
    if ((flags & flag::kConj) != 0) impl->_set_conj(true);
    if ((flags & flag::kNeg) != 0) impl->_set_neg(true);
    NoteRequiresGrad(tensor, flags);
    return tensor;
  }

  c10::Storage StorageFor(TensorKind kind, uint32_t index, uint64_t covered, uint64_t end, uint64_t offset) {
    if (kind == TensorKind::kMeta) {
      if (index != kNoStorage) ThrowInvalid("meta tensor with a storage");
      return MakeStorage(end, c10::GetAllocator(c10::kMeta));
    }
    if (index == kNoStorage) {
      if (covered != 0 || offset != 0) ThrowInvalid("tensor without a storage");
      return MakeStorage(0, c10::GetCPUAllocator());
    }
    if (index >= storages_.size()) ThrowInvalid("tensor in an unknown storage");
    if (covered == 0 || end > storages_[index].nbytes()) ThrowInvalid("tensor outside its storage");
    return storages_[index];
  }

  at::Tensor MakeQuantized(TensorKind kind, c10::Storage storage, c10::ScalarType dtype, const Numbers& sizes) {
    at::QuantizerPtr quantizer;
    if (kind == TensorKind::kPerTensor) {
      const auto scale = in_.Get<double>();
      quantizer = at::make_per_tensor_affine_quantizer(scale, in_.Get<int64_t>(), dtype);
    } else {
      const auto axis = in_.Get<uint8_t>();
      const at::Tensor scales = ReadPart();
      const at::Tensor zero_points = ReadPart();
      if (axis >= sizes.size() || scales.dim() != 1 || zero_points.dim() != 1 || scales.numel() != sizes[axis] ||
          zero_points.numel() != sizes[axis]) {
        ThrowInvalid("quantized tensor with other than one scale and zero point for each channel");
      }
      // Any other type would be converted, before its bytes are here.
      const bool floats = scales.scalar_type() == c10::kFloat && zero_points.scalar_type() == c10::kFloat;
      const bool integers = scales.scalar_type() == c10::kDouble && zero_points.scalar_type() == c10::kLong;
      if ((!floats && !integers) || !scales.is_contiguous() || !zero_points.is_contiguous()) {
        ThrowInvalid("quantized tensor with scales or zero points of another type");
      }
      quantizer = at::make_per_channel_affine_quantizer(scales, zero_points, axis, dtype);
    }
    return at::detail::make_tensor<at::QTensorImpl>(std::move(storage),
                                                    c10::DispatchKeySet(c10::DispatchKey::QuantizedCPU),
                                                    c10::scalarTypeToTypeMeta(dtype), std::move(quantizer));
  }

  at::Tensor ReadSparse(TensorKind kind) {
    SparseParts parts{.kind = kind};
    const auto flags = in_.Get<uint8_t>();
    const auto dim = in_.Get<uint8_t>();
    parts.sparse_dim = in_.Get<uint8_t>();
    const Numbers sizes = ReadNumbers(in_, dim);
    parts.sizes.assign(sizes.begin(), sizes.end());
    const uint8_t allowed = flag::kRequiresGrad | (kind == TensorKind::kCoo ? flag::kCoalesced : 0);
    if ((flags & ~allowed) != 0) ThrowInvalid("sparse tensor with flags that it cannot have");
    parts.coalesced = (flags & flag::kCoalesced) != 0;
    parts.first = ReadPart();
    if (kind != TensorKind::kCoo) parts.second = ReadPart();
    parts.values = ReadPart(flag::kConj | flag::kNeg);
    CheckShapes(parts);
    at::Tensor tensor = PutTogether(parts);
    NoteRequiresGrad(tensor, flags);
    return tensor;
  }

  void NoteRequiresGrad(const at::Tensor& tensor, uint8_t flags) {
    if ((flags & flag::kRequiresGrad) == 0) return;
    const c10::ScalarType dtype = tensor.scalar_type();
    if (!c10::isFloatingType(dtype) && !c10::isComplexType(dtype)) {
      ThrowInvalid("a tensor of dtype " + std::string(c10::toString(dtype)) + " cannot require grad");
    }
    requiring_grad_.push_back(tensor);
  }

  Cursor& in_;
  const size_t max_bulk_;
  size_t bulk_ = 0;
  std::vector<c10::Storage> storages_;
  std::vector<at::Tensor> requiring_grad_;
};

}  // namespace

std::vector<at::Tensor> ReadTensorTable(Cursor& in, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready,
                                        size_t at_once) {
  std::vector<at::Tensor> tensors;
  TableReader reader(in, max_bulk);
  try {
    tensors = reader.Read(targets);
  } catch (const c10::Error& error) {
    ThrowInvalid(std::string("message with a bad tensor: ") + error.what_without_backtrace());
  }
  ready = reader.bulk_bytes() <= at_once;
  if (!ready || targets.empty()) return tensors;
  try {
    Allocate(targets);
  } catch (const Error&) {
    ready = false;  // it is tried once more where its failure is that of one call
  }
  return tensors;
}

void Allocate(std::vector<BulkTarget>& targets) {
  std::vector<BulkTarget*> done;
  done.reserve(targets.size());
  try {
    for (BulkTarget& target : targets) {
      if (target.data) continue;
      at::DataPtr memory = c10::GetCPUAllocator()->allocate(target.size);
      target.data = static_cast<std::byte*>(memory.get());
      target.storage.set_data_ptr_noswap(std::move(memory));
      done.push_back(&target);
    }
  } catch (const std::exception&) {  // of c10 or of the system
    for (BulkTarget* target : done) {
      target->data = nullptr;
      target->storage.set_data_ptr_noswap(NoMemory());
    }
    size_t size = 0;
    for (const BulkTarget& target : targets) size += target.size;
    throw Error(ErrorCode::kOverloaded, "there is no memory for " + std::to_string(size) + " bytes of tensors");
  }
}

namespace {

void CheckHasMemory(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.device().type() != c10::kCPU) return;
  const c10::Storage& storage = tensor.storage();
  if (storage.data() || storage.nbytes() == 0) return;
  throw Error(ErrorCode::kOverloaded, "there was no memory for a tensor of " + std::to_string(storage.nbytes()) +
                                          " bytes where it was sent to");
}

}  // namespace

void CheckArrived(const Payload& payload) {
  for (const at::Tensor& tensor : payload.tensors) {
    if (!tensor.defined()) continue;
    if (tensor.layout() == c10::kStrided) {
      CheckHasMemory(tensor);
      continue;
    }
    const SparseParts parts = TakeApart(tensor);
    for (const at::Tensor* part : {&parts.first, &parts.second, &parts.values}) CheckHasMemory(*part);
    CheckIndices(parts);
  }
}

}  // namespace gradwire::wire
