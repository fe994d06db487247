// The C++ counterpart of pair.py: one side of a pair of workers, driven by lines on standard input.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "gradwire/worker.h"

namespace {

double MedianAddUs(gradwire::Worker& worker, const gradwire::Function<at::Tensor(at::Tensor, at::Tensor)>& add,
                   int calls) {
  const at::Tensor a = at::ones({2}), b = at::ones({2});
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    worker.rpc_sync("server", add, a, b);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[calls / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int rank = std::atoi(argv[1]);
  auto functions = std::make_shared<gradwire::Functions>();
  const auto add = functions->Add("add", [](at::Tensor a, at::Tensor b) { return at::add(a, b); }, {.is_short = true});
  gradwire::Worker worker({.name = rank == 0 ? "client" : "server",
                           .rank = rank,
                           .world_size = 2,
                           .init_method = argv[2],
                           .functions = functions});
  if (rank == 0) {
    std::cout << "ready" << std::endl;
    std::string word;
    for (int calls = 0; std::cin >> word >> calls;) std::cout << MedianAddUs(worker, add, calls) << std::endl;
  }
  worker.shutdown();
  return 0;
}
