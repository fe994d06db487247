// Sparse tensors as the strided tensors that they consist of.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "wire/tensor_record.h"

namespace gradwire::wire {

// Of kCoo: `first` is indices, `second` undefined. Else `first` is the compressed and `second` the plain indices.
struct SparseParts {
  TensorKind kind = TensorKind::kCoo;
  std::vector<int64_t> sizes;
  int64_t sparse_dim = 2;  // of kCoo
  bool coalesced = false;  // of kCoo
  at::Tensor first;
  at::Tensor second;
  at::Tensor values;
};

// `tensor` has one of the sparse layouts, on the CPU. Shares memory.
SparseParts TakeApart(const at::Tensor& tensor);

// Throws Error(kInvalid) unless number, dtypes, shapes and contiguity of the parts fit. Looks at no index.
void CheckShapes(const SparseParts& parts);

// Throws Error(kInvalid) for an index out of range or out of order. `parts` passed CheckShapes.
void CheckIndices(const SparseParts& parts);

// `parts` passed CheckShapes. Shares memory, and does not look at it.
at::Tensor PutTogether(const SparseParts& parts);

}  // namespace gradwire::wire
