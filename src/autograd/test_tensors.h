// Tensors of double that tests of gradients make and compare.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>

namespace gradwire::autograd {

// Random values, which require a gradient.
inline at::Tensor Leaf(std::initializer_list<int64_t> sizes) {
  return at::randn(sizes, at::kDouble).set_requires_grad(true);
}

// The largest absolute one; huge when one is not defined.
inline double Difference(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() ? (a - b).abs().max().item<double>() : 1e9;
}

}  // namespace gradwire::autograd
