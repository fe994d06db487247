// Tensors of every layout and shape that travels, for tests.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace gradwire::wire {

struct TensorSample {
  const char* name;
  std::function<at::Tensor()> make;
};

const std::vector<TensorSample>& TensorSamples();

// Floats of 4 rows and 6 columns, some of them zero.
at::Tensor SampleMatrix();

}  // namespace gradwire::wire
