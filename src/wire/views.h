// What tensors of one message that share memory are to each other on arrival.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace gradwire::wire {

// Makes fresh strided tensors that overlap in memory views of one base, as outputs of a function that returns several
// views are in libtorch: they have one version counter, so that a backward pass notices when saved values were changed,
// and a change in place that autograd would have to record is refused. Before they require grad.
void RelateViews(const std::vector<at::Tensor>& tensors);

}  // namespace gradwire::wire
