// The sparse classes' own members are used, not the operators: those look at indices (some only when a global switch is
// on), and of a received tensor these may still be on their way.
#ifndef AT_PER_OPERATOR_HEADERS
#define AT_PER_OPERATOR_HEADERS
#endif
#include "wire/sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include <string>

#include "wire/cursor.h"

namespace gradwire::wire {
namespace {

void Require(bool holds, const char* rule) {
  if (!holds) ThrowInvalid(std::string("sparse tensor breaks a rule of its layout: ") + rule);
}

c10::Layout LayoutOf(TensorKind kind) {
  switch (kind) {
    case TensorKind::kCsr: return c10::kSparseCsr;
    case TensorKind::kCsc: return c10::kSparseCsc;
    case TensorKind::kBsr: return c10::kSparseBsr;
    default: return c10::kSparseBsc;
  }
}

bool IsBlocked(TensorKind kind) { return kind == TensorKind::kBsr || kind == TensorKind::kBsc; }
bool CompressesRows(TensorKind kind) { return kind == TensorKind::kCsr || kind == TensorKind::kBsr; }

void CheckCooShapes(const SparseParts& parts) {
  const c10::IntArrayRef sizes(parts.sizes);
  const int64_t dim = static_cast<int64_t>(sizes.size());
  Require(parts.sparse_dim >= 0 && parts.sparse_dim <= dim, "it has as many sparse dimensions as dimensions, or fewer");
  Require(parts.first.scalar_type() == c10::kLong && parts.first.dim() == 2, "indices are a matrix of int64");
  Require(parts.first.size(0) == parts.sparse_dim, "indices have a row for each sparse dimension");
  Require(parts.values.dim() == 1 + dim - parts.sparse_dim, "values have a dimension more than it has dense ones");
  Require(parts.values.size(0) == parts.first.size(1), "there are as many values as columns of indices");
  Require(parts.values.sizes().slice(1) == sizes.slice(static_cast<size_t>(parts.sparse_dim)),
          "a value has the dense sizes");
}

void CheckCompressedShapes(const SparseParts& parts) {
  const at::Tensor& compressed = parts.first;
  const at::Tensor& plain = parts.second;
  const at::Tensor& values = parts.values;
  const c10::IntArrayRef sizes(parts.sizes);
  const c10::ScalarType dtype = compressed.scalar_type();
  Require(dtype == plain.scalar_type() && (dtype == c10::kLong || dtype == c10::kInt),
          "indices are of int32 or int64, both of the same");
  Require(compressed.is_contiguous() && plain.is_contiguous(), "indices are contiguous");
  Require(compressed.dim() >= 1 && plain.dim() == compressed.dim(), "its indices have the same number of dimensions");
  const size_t batch = static_cast<size_t>(compressed.dim()) - 1;
  const size_t block = IsBlocked(parts.kind) ? 2 : 0;
  Require(sizes.size() >= batch + 2 && static_cast<size_t>(values.dim()) == sizes.size() - 1 + block,
          "values have the dimensions of batch, block and dense part and one more");
  Require(compressed.sizes().slice(0, batch) == sizes.slice(0, batch) &&
              plain.sizes().slice(0, batch) == sizes.slice(0, batch) &&
              values.sizes().slice(0, batch) == sizes.slice(0, batch),
          "all parts have the sizes of the batch");
  Require(values.sizes().slice(batch + 1 + block) == sizes.slice(batch + 2), "a value has the dense sizes");
  Require(values.size(static_cast<int64_t>(batch)) == plain.size(-1), "there are as many values as plain indices");
  int64_t rows = sizes[batch];
  int64_t columns = sizes[batch + 1];
  if (block != 0) {
    const int64_t block_rows = values.sizes()[batch + 1];
    const int64_t block_columns = values.sizes()[batch + 2];
    Require(block_rows > 0 && block_columns > 0 && rows % block_rows == 0 && columns % block_columns == 0,
            "whole blocks fill it");
    rows /= block_rows;
    columns /= block_columns;
  }
  Require(compressed.size(-1) - 1 == (CompressesRows(parts.kind) ? rows : columns),
          "there is one compressed index more than rows (or columns)");
}

void CheckCooIndices(const SparseParts& parts) {
  const auto* index = parts.first.const_data_ptr<int64_t>();
  const int64_t row_stride = parts.first.stride(0);
  const int64_t column_stride = parts.first.stride(1);
  const int64_t count = parts.first.size(1);
  for (int64_t row = 0; row < parts.sparse_dim; ++row) {
    const int64_t size = parts.sizes[static_cast<size_t>(row)];
    for (int64_t column = 0; column < count; ++column) {
      const int64_t i = index[row * row_stride + column * column_stride];
      Require(i >= 0 && i < size, "indices are inside its sizes");
    }
  }
  if (!parts.coalesced) return;
  for (int64_t column = 1; column < count; ++column) {
    bool greater = false;
    for (int64_t row = 0; row < parts.sparse_dim && !greater; ++row) {
      const int64_t before = index[row * row_stride + (column - 1) * column_stride];
      const int64_t here = index[row * row_stride + column * column_stride];
      Require(here >= before, "coalesced indices are sorted");
      greater = here > before;
    }
    Require(greater, "coalesced indices are distinct");
  }
}

template <class Index>
void CheckCompressedIndices(const SparseParts& parts, int64_t plain_limit) {
  const auto* compressed = parts.first.const_data_ptr<Index>();
  const auto* plain = parts.second.const_data_ptr<Index>();
  const int64_t slots = parts.first.size(-1);
  const int64_t count = parts.second.size(-1);
  const int64_t batches = parts.first.numel() / slots;
  for (int64_t batch = 0; batch < batches; ++batch, compressed += slots, plain += count) {
    Require(compressed[0] == 0 && compressed[slots - 1] == count,
            "compressed indices run from 0 to the number of values");
    for (int64_t slot = 0; slot + 1 < slots; ++slot) {
      const int64_t begin = compressed[slot];
      const int64_t end = compressed[slot + 1];
      Require(begin <= end && end <= count, "compressed indices grow");
      for (int64_t i = begin; i < end; ++i) {
        Require(plain[i] >= 0 && plain[i] < plain_limit, "plain indices are inside its sizes");
        Require(i == begin || plain[i - 1] < plain[i], "plain indices are sorted and distinct");
      }
    }
  }
}

int64_t PlainLimit(const SparseParts& parts) {
  const size_t batch = static_cast<size_t>(parts.first.dim()) - 1;
  const size_t axis = CompressesRows(parts.kind) ? 1 : 0;
  const int64_t size = parts.sizes[batch + axis];
  return IsBlocked(parts.kind) ? size / parts.values.sizes()[batch + 1 + axis] : size;
}

}  // namespace

SparseParts TakeApart(const at::Tensor& tensor) {
  SparseParts parts;
  parts.sizes = tensor.sizes().vec();
  if (tensor.layout() == c10::kSparse) {
    const auto* impl = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    parts.sparse_dim = impl->sparse_dim();
    parts.coalesced = impl->coalesced();
    parts.first = impl->indices();
    parts.values = impl->values();
    return parts;
  }
  const auto* impl = static_cast<const at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
  switch (tensor.layout()) {
    case c10::kSparseCsr: parts.kind = TensorKind::kCsr; break;
    case c10::kSparseCsc: parts.kind = TensorKind::kCsc; break;
    case c10::kSparseBsr: parts.kind = TensorKind::kBsr; break;
    default: parts.kind = TensorKind::kBsc; break;
  }
  parts.first = impl->compressed_indices();
  parts.second = impl->plain_indices();
  parts.values = impl->values();
  return parts;
}

void CheckShapes(const SparseParts& parts) {
  // Indices are made into positions by multiplying sizes.
  const std::vector<int64_t> strides(parts.sizes.size());
  CoveredElements(parts.sizes, strides);
  Require(!parts.first.is_neg() && (!parts.second.defined() || !parts.second.is_neg()), "indices are plain numbers");
  if (parts.kind == TensorKind::kCoo) {
    CheckCooShapes(parts);
  } else {
    CheckCompressedShapes(parts);
  }
}

void CheckIndices(const SparseParts& parts) {
  if (parts.kind == TensorKind::kCoo) {
    CheckCooIndices(parts);
  } else if (parts.first.scalar_type() == c10::kInt) {
    CheckCompressedIndices<int32_t>(parts, PlainLimit(parts));
  } else {
    CheckCompressedIndices<int64_t>(parts, PlainLimit(parts));
  }
}

at::Tensor PutTogether(const SparseParts& parts) {
  const caffe2::TypeMeta dtype = parts.values.dtype();
  if (parts.kind == TensorKind::kCoo) {
    at::Tensor tensor =
        at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCPU), dtype);
    auto* impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    impl->raw_resize_(parts.sparse_dim, static_cast<int64_t>(parts.sizes.size()) - parts.sparse_dim, parts.sizes);
    impl->set_indices_and_values_unsafe(parts.first, parts.values);
    impl->set_coalesced(parts.coalesced);
    return tensor;
  }
  at::Tensor tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), c10::Device(c10::kCPU), LayoutOf(parts.kind), dtype);
  auto* impl = static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
  impl->set_member_tensors(parts.first, parts.second, parts.values, c10::IntArrayRef(parts.sizes));
  return tensor;
}

}  // namespace gradwire::wire
