// The C++ worker of tests/python/test_interop.py and test_mixed_groups.py: rank 1, of two when no world size is given.
#include <ATen/ATen.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <map>
#include <string>

#include "gradwire/autograd.h"
#include "gradwire/worker.h"

using at::Tensor;
using gradwire::Worker;

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  std::promise<Worker*> promise;
  const std::shared_future<Worker*> worker = promise.get_future().share();
  auto functions = std::make_shared<gradwire::Functions>();

  functions->Add("scale", [](Tensor tensor, double by) { return tensor * by; });
  functions->Add("count", [](std::map<std::string, std::vector<int64_t>> lists) {
    std::map<std::string, int64_t> sums;
    for (const auto& [name, numbers] : lists) {
      for (const int64_t number : numbers) sums[name] += number;
    }
    return sums;
  });
  functions->Add("keep", [=](Tensor tensor) { return worker.get()->make_rref(tensor); });
  // A value that no libtorch knows.
  functions->AddHandler("bogus_device", [](const std::shared_ptr<gradwire::IncomingCall>& call) {
    gradwire::Payload value;
    gradwire::ValueWriter(value).PutDevice("bogus");
    call->Reply(std::move(value));
  });
  functions->Add("gather", [=](int64_t value, std::vector<std::string> names) {
    return worker.get()->all_gather(value, names);
  });
  functions->AddHandler("die", [](const std::shared_ptr<gradwire::IncomingCall>&) { std::raise(SIGKILL); });
  // Calls a function that the Python worker has registered, and adds one.
  functions->Add("ask_python", [=](std::string to, Tensor tensor) {
    return worker.get()->rpc_sync<Tensor>(to, "py.twice", std::tuple(tensor)) + 1;
  });
  // What reaches C++ of an exception of Python.
  functions->Add("ask_in_vain", [=](std::string to, std::string function) -> std::string {
    try {
      worker.get()->rpc_sync<Tensor>(to, function, std::tuple(at::ones({1})));
    } catch (const gradwire::Error& error) {
      return std::string(gradwire::ErrorCodeName(error.code())) + " " + error.failure().type_name + " " + error.what();
    }
    return "no error";
  });
  // A reference to what a Python function makes, and the value through it.
  functions->Add("remote_python", [=](std::string to, Tensor tensor) {
    const auto there = worker.get()->remote<Tensor>(to, "py.twice", std::tuple(tensor));
    return std::pair(there, there.to_here());
  });

  const int world_size = argc == 3 ? std::atoi(argv[2]) : 2;
  Worker started({.name = "cpp", .rank = 1, .world_size = world_size, .init_method = argv[1], .functions = functions});
  promise.set_value(&started);
  started.shutdown();
  return 0;
}
