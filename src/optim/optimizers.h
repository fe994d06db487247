// Optimizers: what a worker does for the distributed optimizers of others, as registered functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "gradwire/function.h"

namespace gradwire::optim {

using Gradients = std::function<std::vector<std::pair<at::Tensor, at::Tensor>>(ContextId)>;

// Registers `optim.create` (name, options, references to own parameters; keeps its result) and `optim.step` (reference
// to the optimizer, context). `gradients` gives what autograd has collected in a context.
void RegisterFunctions(Functions& functions, Gradients gradients);

}  // namespace gradwire::optim
