// TestNetwork: several workers' autograd in one process, over calls that tests can lose. Only for tests.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/protocol.h"
#include "autograd/test_tensors.h"
#include "base/thread_pool.h"
#include "rpc/function_entry.h"

namespace gradwire::autograd {

// Messages from one worker to another arrive in order; ordered functions run where they arrive, others on the pool.
class TestNetwork {
 public:
  explicit TestNetwork(size_t workers);
  ~TestNetwork();

  static WorkerId IdOf(size_t rank) { return {static_cast<uint32_t>(rank), 77}; }
  Protocol& at(size_t rank) { return *nodes_[rank]->protocol; }
  ContextTable& table(size_t rank) { return at(rank).interceptor().table(); }

  ContextId NewContext(size_t rank) { return table(rank).New()->id(); }
  at::Tensor Gradient(size_t rank, ContextId context, const at::Tensor& leaf) {
    const auto found = table(rank).Find(context);
    return found ? found->gradient(leaf) : at::Tensor();
  }

  // A user's call of `function` on another worker, both sides on this thread, recorded in what is current on it.
  using UserFunction = std::function<TensorList(TensorList)>;
  TensorList Call(size_t from, size_t to, const TensorList& args, const UserFunction& function);

  // From now on nothing reaches the worker, and calls to it fail.
  void Kill(size_t rank);
  // Calls of `function` to the worker fail, as if it were lost just then for one; everything else works.
  void FailCallsOf(const std::string& function, size_t to, ErrorCode code = ErrorCode::kDisconnected);
  // How many messages of autograd were sent so far.
  size_t messages() const;
  // Until nothing is under way.
  void Settle();

 private:
  friend class TestCalls;
  struct Node {
    rpc::Peer self;
    std::unique_ptr<ThreadPool> pool;
    Functions functions;
    std::shared_ptr<Protocol> protocol;
    std::mutex inbox_mutex;
    std::deque<Task> inbox;  // header steps in the order of arrival, run by one thread at a time: the read role
    bool draining = false;
  };
  static void Drain(Node& node);
  void Deliver(size_t from, WorkerId to, const std::string& function, Payload args, Completion done);

  std::vector<std::unique_ptr<Node>> nodes_;
  mutable std::mutex mutex_;  // guards all below
  size_t messages_ = 0;
  std::set<size_t> dead_;
  std::map<std::pair<std::string, size_t>, ErrorCode> failing_;
};

// Makes `context` current on this thread for one worker.
class InContext {
 public:
  InContext(TestNetwork& network, size_t rank, ContextId context)
      : context_(network.table(rank).Find(context)), scope_(network.at(rank).interceptor().current(), context_) {}

 private:
  std::shared_ptr<ContextState> context_;
  CurrentContext::Scope scope_;
};

// A program: x on worker 0, w on worker 1, loss = sum(tanh(x w)), the product there.
struct OneHop {
  TestNetwork& network;
  ContextId context = network.NewContext(0);
  at::Tensor x = Leaf({4}), w = Leaf({4});

  at::Tensor Loss() {
    const InContext scope(network, 0, context);
    const TensorList result = network.Call(0, 1, {x}, [&](TensorList args) { return TensorList{args[0] * w}; });
    return at::tanh(result[0]).sum();
  }
  TensorList Wanted() { return torch::autograd::grad({at::tanh(x * w).sum()}, {x, w}); }
};

}  // namespace gradwire::autograd
