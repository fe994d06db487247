// A group of one that calls itself, built against an installed gradwire.
#include <ATen/ATen.h>

#include <iostream>

#include "gradwire/worker.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto functions = std::make_shared<gradwire::Functions>();
  const auto negate = functions->Add("negate", [](at::Tensor t) { return t.neg(); });
  gradwire::Worker worker(
      {.name = "alone", .rank = 0, .world_size = 1, .init_method = argv[1], .functions = functions});
  std::cout << "answer: " << worker.rpc_sync("alone", negate, at::full({1}, -42)).item<int64_t>() << std::endl;
  worker.shutdown();
}
