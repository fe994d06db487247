#include "wire/views.h"

#include <c10/core/Storage.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <tuple>

#include "wire/tensor_record.h"

namespace gradwire::wire {
namespace {

struct Range {
  const c10::StorageImpl* storage;
  int64_t begin, end;  // bytes
  const at::Tensor* tensor;
};

at::Tensor WholeStorage(const at::Tensor& tensor) {
  auto base = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  base.unsafeGetTensorImpl()->set_sizes_contiguous(
      {static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size())});
  return base;
}

void MakeViewOf(const at::Tensor& base, const at::Tensor& tensor) {
  using torch::autograd::ViewInfo;
  torch::autograd::make_variable_differentiable_view(tensor, ViewInfo(base, /*view_fn=*/nullptr, nullptr), std::nullopt,
                                                     /*shared_view_info=*/false,
                                                     torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
}

std::vector<Range> RangesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<Range> ranges;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.is_cpu() || tensor.is_quantized()) continue;
    const int64_t covered = CoveredElements(tensor.sizes(), tensor.strides());
    if (covered == 0) continue;
    const auto size = static_cast<int64_t>(tensor.element_size());
    const int64_t begin = tensor.storage_offset() * size;
    ranges.push_back({tensor.storage().unsafeGetStorageImpl(), begin, begin + covered * size, &tensor});
  }
  return ranges;
}

}  // namespace

void RelateViews(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() < 2) return;
  std::vector<Range> ranges = RangesOf(tensors);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
  });
  for (size_t i = 0; i < ranges.size();) {
    int64_t end = ranges[i].end;
    size_t next = i + 1;
    while (next < ranges.size() && ranges[next].storage == ranges[i].storage && ranges[next].begin < end) {
      end = std::max(end, ranges[next++].end);
    }
    if (next > i + 1) {
      const at::Tensor base = WholeStorage(*ranges[i].tensor);
      for (size_t member = i; member < next; ++member) MakeViewOf(base, *ranges[member].tensor);
    }
    i = next;
  }
}

}  // namespace gradwire::wire
