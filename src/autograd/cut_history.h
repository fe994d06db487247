// Tensors that came in a call outside of every context: the history that they have elsewhere ends there.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/nodes.h"

namespace gradwire::autograd {

// Those of `tensors` that have a history, here or where they came from, by their number among those that require grad.
std::vector<uint32_t> WithHistory(const TensorList& tensors);

// Notes on those that came from `peer` that it keeps their history. Ordinary backward passes take no notice; in a pass
// of a context their gradients would be missed. Throws Error(kInvalid) for a number that no tensor has.
void NoteCut(const TensorList& tensors, const std::vector<uint32_t>& numbers, WorkerId peer);

// Throws Error(kInvalid) for the accumulation node of such a tensor.
void CheckHistory(Node& node);

}  // namespace gradwire::autograd
