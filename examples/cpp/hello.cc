// Two workers in two processes: rank 0 asks rank 1 for a product, and keeps a reference to one.
//
//   hello 0 tcp://127.0.0.1:29500 &  hello 1 tcp://127.0.0.1:29500
#include <ATen/ATen.h>

#include <cstdlib>
#include <iostream>

#include "gradwire/worker.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: hello RANK tcp://HOST:PORT\n";
    return 2;
  }
  const int rank = std::atoi(argv[1]);
  auto functions = std::make_shared<gradwire::Functions>();
  const auto multiply = functions->Add("multiply", [](at::Tensor a, at::Tensor b) { return a.mm(b); });

  gradwire::Worker worker({.name = "worker" + std::to_string(rank),
                           .rank = rank,
                           .world_size = 2,
                           .init_method = argv[2],
                           .functions = functions});
  if (rank == 0) {
    const at::Tensor a = at::eye(2) * 2, b = at::ones({2, 2});
    const at::Tensor here = worker.rpc_sync("worker1", multiply, a, b);
    const gradwire::RRef<at::Tensor> there = worker.remote("worker1", multiply, here, b);
    std::cout << "2 * 1 = " << here[0][0].item<float>() << ", kept by " << there.owner().name << ": "
              << there.to_here()[0][0].item<float>() << std::endl;
  }
  worker.shutdown();
  return 0;
}
