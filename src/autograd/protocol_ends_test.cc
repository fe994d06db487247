// How passes over several workers end that do not end well: failures and losses (A3), release (A7), the end of a worker
// and of a wait (C1), on a network that tests can break.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <thread>

#include "autograd/protocol.h"
#include "autograd/test_network.h"
#include "autograd/test_tensors.h"
#include "base/test_failure.h"
#include "gradwire/wait_hook.h"

namespace gradwire::autograd {
namespace {

TEST(ProtocolEnds, A3_AFailingHookEndsThePassEverywhereAndTheContextStaysUsable) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), w = Leaf({4});
  bool fails = true;
  w.register_hook([&](const at::Tensor& g) -> at::Tensor {
    if (fails) throw std::out_of_range("on purpose");
    return g;
  });
  at::Tensor loss;
  {
    const InContext scope(network, 0, context);
    const auto hop = [&](TensorList args) {
      return network.Call(1, 2, args, [&](TensorList deeper) { return TensorList{deeper[0] * w}; });
    };
    const at::Tensor result = network.Call(0, 1, {x}, hop)[0];
    loss = (result * x).sum();
  }
  for (int i = 0; i < 50; ++i) {
    const Failure failure = FailureOf([&] { network.at(0).Backward(context, {loss}, true); });
    EXPECT_EQ(failure.code, ErrorCode::kRemote);
    EXPECT_EQ(failure.text, "Error on Node 2: on purpose");
    EXPECT_EQ(failure.type_name, "std::out_of_range");
    EXPECT_EQ(failure.worker, "w2");
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(network.at(rank).passes(), 0u) << "pass " << i << " left its state";
      EXPECT_TRUE(network.table(rank).Find(context)->gradients().empty());
    }
  }
  fails = false;
  for (int i = 0; i < 3; ++i) network.at(0).Backward(context, {loss}, true);
  const auto wanted = torch::autograd::grad({(x * w * x).sum()}, {x, w});
  EXPECT_LT(Difference(network.Gradient(0, context, x), 3 * wanted[0]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(2, context, w), 3 * wanted[1]), 1e-12);
}

TEST(ProtocolEnds, A3_AnErrorOnTheStarterItself) {
  TestNetwork network(2);
  OneHop job{network};
  job.x.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("here"); });
  const Failure failure = FailureOf([&] { network.at(0).Backward(job.context, {job.Loss()}, false); });
  EXPECT_EQ(failure.text, "Error on Node 0: here");
  EXPECT_EQ(network.at(1).passes(), 0u);
  EXPECT_TRUE(network.table(1).Find(job.context)->gradients().empty()) << "the other worker adds nothing either";
}

TEST(ProtocolEnds, A3_ALostWorkerTwoHopsAwayEndsThePassAndPoisonsTheContext) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  at::Tensor loss;
  {
    const InContext scope(network, 0, context);
    const auto hop = [&](TensorList args) {
      return network.Call(1, 2, args, [&](TensorList deeper) { return TensorList{deeper[0] * 2}; });
    };
    loss = network.Call(0, 1, {x}, hop)[0].sum();
  }
  network.Kill(2);
  for (int i = 0; i < 2; ++i) {
    const Failure failure = FailureOf([&] { network.at(0).Backward(context, {loss}, true); });
    EXPECT_EQ(failure.code, ErrorCode::kDisconnected);
    EXPECT_NE(failure.text.find("'w2'"), std::string::npos) << failure.text;
    EXPECT_EQ(network.at(0).passes() + network.at(1).passes(), 0u);
  }
  const size_t before = network.messages();
  FailureOf([&] { network.at(0).Backward(context, {loss}, true); });
  EXPECT_EQ(network.messages(), before) << "a poisoned context fails at once";
}

TEST(ProtocolEnds, A3_AnyMessageMayFail) {
  for (const char* function : {"autograd.mark", "autograd.gradients", "autograd.run", "autograd.commit"}) {
    for (size_t to = 0; to < 3; ++to) {
      TestNetwork network(3);
      const ContextId context = network.NewContext(0);
      const at::Tensor x = Leaf({4}), w = Leaf({4});
      at::Tensor loss;
      {
        const InContext scope(network, 0, context);
        const auto hop = [&](TensorList args) {
          return network.Call(1, 2, {args[0] * 3}, [&](TensorList deeper) { return TensorList{deeper[0] * w}; });
        };
        loss = network.Call(0, 1, {x}, hop)[0].sum();
      }
      // The starter runs and commits its own part without messages.
      const bool matters =
          to != 0 || (std::string(function) != "autograd.run" && std::string(function) != "autograd.commit");
      network.FailCallsOf(function, to);
      if (matters) {
        const Failure failure = FailureOf([&] { network.at(0).Backward(context, {loss}, true); });
        EXPECT_EQ(failure.code, ErrorCode::kDisconnected) << function << " to " << to;
      } else {
        network.at(0).Backward(context, {loss}, true);
      }
      network.Settle();
      const bool half_committed = std::string(function) == "autograd.commit";
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(network.at(rank).passes(), 0u) << function << " to " << to << ": left at " << rank;
        if (matters && !half_committed) {
          EXPECT_TRUE(network.table(rank).Find(context)->gradients().empty()) << function << " to " << to;
        }
      }
    }
  }
}

TEST(ProtocolEnds, A3_WhatFailsToCommitPoisonsTheContextWhateverTheReason) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  at::Tensor loss;
  {
    const InContext scope(network, 0, context);
    const auto square = [](TensorList args) { return TensorList{args[0] * args[0]}; };
    loss = network.Call(0, 1, {x}, square)[0].sum() + network.Call(0, 2, {x}, square)[0].sum();
  }
  network.FailCallsOf("autograd.commit", 2, ErrorCode::kInternal);
  for (int pass = 0; pass < 2; ++pass) {
    const size_t before = network.messages();
    const Failure failure = FailureOf([&] { network.at(0).Backward(context, {loss}, true); });
    EXPECT_EQ(failure.code, ErrorCode::kInternal);
    EXPECT_EQ(pass == 1, network.messages() == before) << "worker 1 has added its gradients once already";
  }
}

TEST(ProtocolEnds, A3_TheDeathOfItsStarterEndsAPassOnTheOthers) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(1);  // not the starter's
  const at::Tensor w = Leaf({4});
  at::Tensor loss;
  {
    const InContext scope(network, 1, context);
    network.Call(1, 0, {w * 2}, [&](TensorList args) {
      loss = args[0].sum();
      return TensorList{};
    });
  }
  w.register_hook([&](const at::Tensor& g) {
    network.Kill(0);
    network.at(1).OnPeerEnded(TestNetwork::IdOf(0), {.code = ErrorCode::kDisconnected, .text = "w0 has left"});
    return g;
  });
  EXPECT_EQ(FailureOf([&] { network.at(0).Backward(context, {loss}, true); }).code, ErrorCode::kDisconnected);
  network.Settle();
  EXPECT_EQ(network.at(1).passes(), 0u);
  EXPECT_TRUE(network.table(1).Find(context)->gradients().empty());
}

// A pass of worker 0 that has come to the parameter of worker 1, where it is held up.
struct HeldUp {
  TestNetwork& network;
  OneHop job{network};
  Event reached, go_on;
  unsigned hook = job.w.register_hook([this](const at::Tensor& gradient) {
    reached.Set();
    go_on.Wait();
    return gradient;
  });
  at::Tensor loss = job.Loss();
  Failure failure;
  std::thread program;

  // `hook`: what the waiting thread calls from time to time.
  void Start(WaitHook::Hook look = nullptr) {
    program = std::thread([this, look] {
      const WaitHook looks(look);
      failure = FailureOf([this] { network.at(0).Backward(job.context, {loss}, true); });
    });
    reached.Wait();
  }
};

TEST(ProtocolEnds, C1_TheEndOfTheWorkerEndsItsBackward) {
  TestNetwork network(2);
  HeldUp pass{network};
  pass.Start();
  network.at(0).Close({.code = ErrorCode::kDisconnected, .text = "w0 has shut down"});
  pass.program.join();
  EXPECT_EQ(pass.failure.text, "w0 has shut down");
  EXPECT_EQ(FailureOf([&] { network.at(0).Backward(pass.job.context, {pass.loss}, true); }).text, "w0 has shut down");
  EXPECT_EQ(network.at(0).passes(), 0u);
  network.at(1).OnPeerEnded(TestNetwork::IdOf(0), {.code = ErrorCode::kDisconnected, .text = "w0 has left"});
  network.at(1).OnPeerDrained(TestNetwork::IdOf(0));
  pass.go_on.Set();
  network.Settle();
  EXPECT_EQ(network.at(1).passes(), 0u);
  EXPECT_TRUE(network.table(1).Find(pass.job.context) == nullptr) << "nobody is left to release it";
}

std::atomic<bool> interrupted{false};
void LookForInterrupt() {
  if (interrupted) throw Error(ErrorCode::kCancelled, "interrupted");
}

TEST(ProtocolEnds, C1_AnInterruptedBackwardLeavesAndAbandonsItsPass) {
  TestNetwork network(2);
  HeldUp pass{network};
  interrupted = false;
  pass.Start(LookForInterrupt);
  interrupted = true;
  pass.program.join();  // though a node of worker 1 still runs
  EXPECT_EQ(pass.failure.text, "interrupted");
  pass.go_on.Set();
  network.Settle();
  EXPECT_EQ(network.at(0).passes() + network.at(1).passes(), 0u);
  EXPECT_TRUE(network.table(1).Find(pass.job.context)->gradients().empty());
  network.at(0).Backward(pass.job.context, {pass.loss}, true);
  EXPECT_LT(Difference(network.Gradient(1, pass.job.context, pass.job.w), pass.job.Wanted()[1]), 1e-12);
}

// As for a frozen one: nothing that was sent to it fails before it is declared lost.
TEST(ProtocolEnds, A3_AWorkerDeclaredLostEndsThePassesItTakesPartIn) {
  TestNetwork network(2);
  HeldUp pass{network};
  pass.Start();
  network.Kill(1);
  network.at(0).OnPeerEnded(TestNetwork::IdOf(1), {.code = ErrorCode::kDisconnected, .text = "w1 was declared lost"});
  pass.program.join();
  EXPECT_EQ(pass.failure.text, "w1 was declared lost");
  EXPECT_EQ(network.at(0).passes(), 0u);
  const size_t before = network.messages();
  EXPECT_EQ(FailureOf([&] { network.at(0).Backward(pass.job.context, {pass.loss}, true); }).text,
            "w1 was declared lost");
  EXPECT_EQ(network.messages(), before);
  pass.go_on.Set();
}

TEST(ProtocolEnds, A3_AnUnreachableWorkerPoisonsTheContext) {
  TestNetwork network(2);
  OneHop job{network};
  const at::Tensor loss = job.Loss();
  network.FailCallsOf("autograd.mark", 1, ErrorCode::kUnreachable);
  for (int pass = 0; pass < 2; ++pass) {
    const size_t before = network.messages();
    const Failure failure = FailureOf([&] { network.at(0).Backward(job.context, {loss}, true); });
    EXPECT_EQ(failure.code, ErrorCode::kUnreachable);
    EXPECT_EQ(pass == 1, network.messages() == before);
  }
}

TEST(ProtocolEnds, A3_ReleaseDuringAPassEndsIt) {
  TestNetwork network(2);
  OneHop job{network};
  const at::Tensor loss = job.Loss();
  job.w.register_hook([&](const at::Tensor& g) {
    network.at(0).Release(job.context);
    return g;
  });
  const Failure failure = FailureOf([&] { network.at(0).Backward(job.context, {loss}, true); });
  EXPECT_EQ(failure.code, ErrorCode::kInvalid);
  EXPECT_NE(failure.text.find("released while a pass ran"), std::string::npos) << failure.text;
  network.Settle();
  EXPECT_EQ(network.at(0).passes() + network.at(1).passes(), 0u);
}

}  // namespace
}  // namespace gradwire::autograd
