// A random program over several workers, for tests of gradients: the same with remote calls and with plain ones.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace gradwire::sim {

using Tensors = std::vector<at::Tensor>;

// How another worker's part is run.
using CallPart = std::function<Tensors(size_t here, size_t there, int64_t seed, int64_t depth, const Tensors&)>;

// Steps of arithmetic with the parameter of the worker that runs them, and calls that do the same elsewhere. There are
// as many workers as parameters, each of which holds four doubles.
inline Tensors RunPart(const Tensors& parameters, const CallPart& call, size_t here, int64_t seed, int64_t depth,
                       Tensors values) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  const auto draw = [&](size_t below) { return static_cast<size_t>(random() % below); };
  const auto any = [&] { return values[draw(values.size())]; };
  for (int step = 0; step < 5; ++step) {
    const size_t what = draw(depth > 0 ? 4 : 2);
    if (what == 0) {
      values.push_back(at::tanh(any() * parameters[here]));
    } else if (what == 1) {
      const at::Tensor first = any();
      values.push_back(first + any() * 0.5);
    } else {
      Tensors args{any()};
      if (draw(2)) args.push_back(any());
      if (draw(3) == 0) args.push_back(at::ones({4}, at::kDouble));  // does not require grad
      const size_t there = draw(parameters.size());
      const auto part_seed = static_cast<int64_t>(draw(1'000'000));
      for (const at::Tensor& result : call(here, there, part_seed, depth - 1, args)) {
        if (draw(4)) values.push_back(result);  // some stay unused
      }
    }
  }
  Tensors results{values.back()};
  if (draw(2)) results.push_back(any());
  return results;
}

}  // namespace gradwire::sim
