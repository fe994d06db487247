// Autograd over the real call layer: three workers in one process, each with its own threads.
#include "autograd/autograd.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <thread>

#include "autograd/test_tensors.h"
#include "base/loop.h"
#include "base/thread_pool.h"
#include "rpc/rpc.h"
#include "transport/inproc/inproc_transport.h"

namespace gradwire::autograd {
namespace {

using TensorList = std::vector<at::Tensor>;

class Group {
 public:
  explicit Group(size_t workers) {
    std::vector<rpc::Member> members;
    for (size_t rank = 0; rank < workers; ++rank) {
      auto node = std::make_unique<Node>();
      const rpc::Peer self{.id = {static_cast<uint32_t>(rank), 50}, .name = "worker" + std::to_string(rank)};
      node->pool = std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = 2});
      node->transport = std::make_shared<transport::InprocTransport>(network_, node->pool);
      auto internal = std::make_shared<Functions>();
      node->autograd = std::make_unique<Autograd>(self, *internal);
      rpc::Rpc::Options options;
      options.self = self;
      options.job_key = "test";
      options.clock = loop_;
      options.executor = node->pool;
      options.transports = {node->transport};
      options.functions = node->functions;
      options.internal_functions = internal;
      options.interceptors = {node->autograd->interceptor()};
      options.on_peer_ended = [autograd = node->autograd.get()](const rpc::Peer& peer, const Failure& why) {
        autograd->OnPeerEnded(peer, why);
      };
      options.on_peer_drained = [autograd = node->autograd.get()](const rpc::Peer& peer) {
        autograd->OnPeerDrained(peer);
      };
      node->rpc = std::make_shared<rpc::Rpc>(std::move(options));
      node->autograd->Attach(node->rpc);
      members.push_back({.peer = self, .addresses = {node->rpc->Listen()[0]}});
      nodes_.push_back(std::move(node));
    }
    for (const auto& node : nodes_) {
      for (const rpc::Member& member : members) node->rpc->members().Add(member);
    }
  }
  ~Group() {
    for (size_t rank = 0; rank < nodes_.size(); ++rank) Stop(rank);
    for (const auto& node : nodes_) node->transport->Stop();
    for (const auto& node : nodes_) node->pool->Stop();
  }

  void Stop(size_t rank) { nodes_[rank]->rpc->Stop("the worker has ended"); }
  Autograd& autograd(size_t rank) { return *nodes_[rank]->autograd; }

  // Calls of "run" on a worker run what stands here for it under that name.
  using Body = std::function<TensorList(TensorList)>;
  void Define(size_t rank, const std::string& name, Body body) {
    nodes_[rank]->functions->Add(name, [body](TensorList args) { return body(std::move(args)); });
  }
  TensorList Call(size_t from, size_t to, const std::string& function, const TensorList& args) {
    rpc::Call call;
    call.to = nodes_[to]->rpc->self().id;
    call.function = function;
    call.args = EncodeValue(std::tuple<TensorList>(args));
    Outcome outcome = nodes_[from]->rpc->SendAndWait(std::move(call));
    return DecodeValue<TensorList>(outcome.value());
  }

  at::Tensor Gradient(size_t rank, ContextId context, const at::Tensor& leaf) {
    for (const auto& [known, gradient] : autograd(rank).Gradients(context)) {
      if (known.is_same(leaf)) return gradient;
    }
    return {};
  }
  // Until no worker knows the context.
  bool IsReleased(ContextId context) {
    for (int i = 0; i < 100'000; ++i) {
      bool known = false;
      for (const auto& node : nodes_) known = known || node->autograd->Knows(context);
      if (!known) return true;
      std::this_thread::yield();
    }
    return false;
  }

 private:
  struct Node {
    std::shared_ptr<ThreadPool> pool;
    std::shared_ptr<transport::InprocTransport> transport;
    std::shared_ptr<Functions> functions = std::make_shared<Functions>();
    std::unique_ptr<Autograd> autograd;
    std::shared_ptr<rpc::Rpc> rpc;
  };
  std::shared_ptr<Loop> loop_ = std::make_shared<Loop>();
  transport::InprocNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// Parameters on three workers: "one" on worker 1 calls "two" on worker 2, which calls "zero" back on worker 0.
struct Model {
  explicit Model(Group& given, at::ScalarType type) : group(given) {
    for (at::Tensor* leaf : {&x, &p0, &p1, &p2}) *leaf = (at::rand({6}, type) * 0.5).set_requires_grad(true);
    group.Define(0, "zero", [this](TensorList args) { return Zero(std::move(args)); });
    group.Define(1, "one", [this](TensorList args) {
      return One(std::move(args), [this](TensorList deeper) { return group.Call(1, 2, "two", deeper); });
    });
    group.Define(2, "two", [this](TensorList args) {
      return Two(std::move(args), [this](TensorList deeper) { return group.Call(2, 0, "zero", deeper); });
    });
  }
  TensorList Zero(TensorList args) { return {args[0] * p0, args[0] + p0}; }
  TensorList One(TensorList args, const Group::Body& two) {
    const at::Tensor h = at::tanh(args[0] * p1);
    const TensorList deep = two({h, at::ones({2})});
    two({h});  // unused
    return {deep[0] + h, deep[1] * p1};
  }
  TensorList Two(TensorList args, const Group::Body& zero) {
    const TensorList back = zero({at::sin(args[0] * p2)});
    return {back[0], back[1] + p2};
  }
  at::Tensor Loss(const Group::Body& one, const Group::Body& two) {
    const at::Tensor h = x * 2;
    const TensorList a = one({h}), b = two({h}), c = two({a[0]});
    one({h});                                      // unused
    return (a[0] * b[0] + c[1] * h + a[1]).sum();  // b[1] unused, h used here and there
  }
  at::Tensor Distributed(ContextId context) {
    const Surroundings::Scope current(group.autograd(0).Inside(context));
    return Loss([this](TensorList args) { return group.Call(0, 1, "one", args); },
                [this](TensorList args) { return group.Call(0, 2, "two", args); });
  }
  TensorList Wanted() {
    const auto two = [this](TensorList args) { return Two(args, [this](TensorList deeper) { return Zero(deeper); }); };
    const auto one = [&](TensorList args) { return One(args, two); };
    return torch::autograd::grad({Loss(one, two)}, {x, p0, p1, p2});
  }
  double Worst(ContextId context, double passes = 1) {
    const TensorList wanted = Wanted();
    const at::Tensor leaves[] = {x, p0, p1, p2};
    const size_t owners[] = {0, 0, 1, 2};
    double worst = 0;
    for (size_t i = 0; i < 4; ++i) {
      worst = std::max(worst, Difference(group.Gradient(owners[i], context, leaves[i]), wanted[i] * passes));
    }
    return worst;
  }

  Group& group;
  at::Tensor x, p0, p1, p2;
};

TEST(AutogradTest, A1_ThreeWorkersEqualOneProcess) {
  for (const auto& [type, limit] : {std::pair(at::kFloat, 1e-6), std::pair(at::kDouble, 1e-12)}) {
    Group group(3);
    Model model(group, type);
    const ContextId context = group.autograd(0).NewContext();
    group.autograd(0).Backward(context, {model.Distributed(context)});
    EXPECT_LE(model.Worst(context), limit);
    EXPECT_FALSE(model.p1.grad().defined());
    EXPECT_TRUE(group.autograd(0).Release(context));
    EXPECT_TRUE(group.IsReleased(context));  // A7
  }
}

TEST(AutogradTest, A4_RetainedPassesAccumulateAndHooksRunOncePerPass) {
  Group group(3);
  Model model(group, at::kDouble);
  std::atomic<int> calls{0};
  const ContextId context = group.autograd(0).NewContext();
  const at::Tensor loss = model.Distributed(context);
  const unsigned hook = model.p2.register_hook([&](const at::Tensor& g) {
    ++calls;
    return g;
  });
  for (int i = 0; i < 3; ++i) group.autograd(0).Backward(context, {loss}, /*retain_graph=*/true);
  EXPECT_EQ(calls, 3);
  model.p2.remove_hook(hook);
  EXPECT_LE(model.Worst(context, 3), 1e-11);
  EXPECT_EQ(group.autograd(0).counts().passes, 0u);
}

TEST(AutogradTest, A5_ContextsFromSeveralThreadsDoNotMix) {
  Group group(3);
  Model model(group, at::kDouble);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const ContextId context = group.autograd(0).NewContext();
        group.autograd(0).Backward(context, {model.Distributed(context)});
        if (model.Worst(context) > 1e-12) ++wrong;
        group.autograd(0).Release(context);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(AutogradTest, A3_FiftyFailedPassesAndThenGoodOnes) {
  Group group(3);
  Model model(group, at::kDouble);
  std::atomic<bool> fails{true};
  const ContextId context = group.autograd(0).NewContext();
  const at::Tensor loss = model.Distributed(context);
  const unsigned hook = model.p2.register_hook([&](const at::Tensor& g) -> at::Tensor {
    if (fails) throw std::domain_error("simulated");
    return g;
  });
  for (int i = 0; i < 50; ++i) {
    try {
      group.autograd(0).Backward(context, {loss}, true);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().text, "Error on Node 2: simulated");
      EXPECT_EQ(error.failure().type_name, "std::domain_error");
    }
  }
  fails = false;
  group.autograd(0).Backward(context, {loss}, true);
  group.autograd(0).Backward(context, {loss}, true);
  model.p2.remove_hook(hook);
  EXPECT_LE(model.Worst(context, 2), 1e-11);
}

TEST(AutogradTest, A3_ALostWorkerEndsThePassWithItsName) {
  Group group(3);
  Model model(group, at::kDouble);
  const ContextId context = group.autograd(0).NewContext();
  const at::Tensor loss = model.Distributed(context);
  group.Stop(2);
  for (int i = 0; i < 2; ++i) {
    try {
      group.autograd(0).Backward(context, {loss}, true);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDisconnected);
      EXPECT_NE(error.failure().text.find("worker2"), std::string::npos) << error.failure().text;
    }
  }
  EXPECT_TRUE(group.autograd(0).Release(context)) << "and that is no error";
}

TEST(AutogradTest, A3_AWorkerLostInTheMiddleOfAPassEndsIt) {
  Group group(3);
  Model model(group, at::kDouble);
  const ContextId context = group.autograd(0).NewContext();
  const at::Tensor loss = model.Distributed(context);
  model.p1.register_hook([&](const at::Tensor& g) {
    group.Stop(1);
    return g;
  });
  EXPECT_THROW(group.autograd(0).Backward(context, {loss}, true), Error);
  EXPECT_EQ(group.autograd(0).counts().passes, 0u);
}

TEST(AutogradTest, SparseGradientsTravelAndAccumulate) {
  Group group(2);
  const at::Tensor table = at::rand({10, 4}, at::kDouble).set_requires_grad(true);
  const ContextId context = group.autograd(0).NewContext();
  group.Define(1, "rows", [](TensorList args) {
    return TensorList{at::embedding(args[0], at::tensor({1, 3, 3}, at::kLong), -1, false, /*sparse=*/true)};
  });
  at::Tensor loss;
  {
    const Surroundings::Scope current(group.autograd(0).Inside(context));
    loss = group.Call(0, 1, "rows", {table})[0].sum();
  }
  group.autograd(0).Backward(context, {loss}, true);
  group.autograd(0).Backward(context, {loss}, true);
  const at::Tensor gradient = group.Gradient(0, context, table);
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(gradient.is_sparse());
  EXPECT_EQ(gradient.to_dense()[3][0].item<double>(), 4);
  EXPECT_EQ(gradient.to_dense().sum().item<double>(), 24);
}

TEST(AutogradTest, CallsToOneselfAreRecordedToo) {
  Group group(1);
  const at::Tensor x = at::rand({3}, at::kDouble).set_requires_grad(true);
  group.Define(0, "square", [](TensorList args) { return TensorList{args[0] * args[0]}; });
  const ContextId context = group.autograd(0).NewContext();
  at::Tensor loss;
  {
    const Surroundings::Scope current(group.autograd(0).Inside(context));
    loss = group.Call(0, 0, "square", group.Call(0, 0, "square", {x}))[0].sum();
  }
  const Autograd::Record record = group.autograd(0).Inspect(context);
  EXPECT_EQ(record.sends.size(), 4u);
  EXPECT_EQ(record.recvs.size(), 4u);
  group.autograd(0).Backward(context, {loss});
  EXPECT_LE(Difference(group.Gradient(0, context, x), 4 * x.detach().pow(3)), 1e-12);
}

TEST(AutogradTest, UnknownContextsAreClearErrors) {
  Group group(1);
  Autograd& autograd = group.autograd(0);
  EXPECT_FALSE(autograd.Release(100));
  EXPECT_EQ(autograd.current(), -1);
  for (const std::function<void()>& use : {std::function<void()>([&] { autograd.Inside(100); }),
                                           std::function<void()>([&] { autograd.Gradients(100); }),
                                           std::function<void()>([&] { autograd.Inspect(100); })}) {
    try {
      use();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      EXPECT_NE(error.failure().text.find("context with id: 100"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gradwire::autograd
