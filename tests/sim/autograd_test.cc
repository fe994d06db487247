// Distributed autograd between three workers in one thread: random programs, in every order of messages that a seed
// makes, against the same program without workers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "sim/cluster.h"
#include "sim/random_program.h"

namespace gradwire::sim {
namespace {

class Gradients : public testing::TestWithParam<int> {
 protected:
  Gradients() : cluster(static_cast<uint64_t>(GetParam()), 3) {
    for (at::Tensor& leaf : parameters) leaf = at::rand({4}, at::kDouble).set_requires_grad(true);
    x = at::rand({4}, at::kDouble).set_requires_grad(true);
    for (size_t rank = 0; rank < 3; ++rank) {
      cluster[rank].functions->Add("part", [this, rank](int64_t seed, int64_t depth, Tensors args) {
        return RunPart(parameters, remote, rank, seed, depth, std::move(args));
      });
    }
  }

  at::Tensor Loss(const CallPart& call) { return RunPart(parameters, call, 0, GetParam(), 3, {x * 2})[0].sum(); }
  at::Tensor DistributedLoss(ContextId context) {
    const Surroundings::Scope inside(cluster.autograd(0).Inside(context));
    return Loss(remote);
  }

  // Whether the pass ended well; `text` is its error otherwise.
  bool Backward(ContextId context, const at::Tensor& loss, std::string* text = nullptr) {
    try {
      cluster.autograd(0).Backward(context, {loss}, true);
      return true;
    } catch (const Error& error) {
      if (text) *text = error.failure().text;
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.failure().text;
      return false;
    }
  }
  at::Tensor Gradient(size_t rank, ContextId context, const at::Tensor& leaf) {
    for (const auto& [known, gradient] : cluster.autograd(rank).Gradients(context)) {
      if (known.is_same(leaf)) return gradient;
    }
    return {};
  }
  // The keys, too: what one process gives no gradient has no entry.
  void ExpectWanted(ContextId context) {
    const at::Tensor leaves[] = {parameters[0], parameters[1], parameters[2], x};
    const Tensors wanted = torch::autograd::grad({Loss(local)}, {leaves[0], leaves[1], leaves[2], leaves[3]}, {},
                                                 std::nullopt, false, /*allow_unused=*/true);
    for (size_t i = 0; i < 4; ++i) {
      const size_t owner = i % 3;
      const bool reached = cluster.autograd(owner).Knows(context);
      const at::Tensor got = reached ? Gradient(owner, context, leaves[i]) : at::Tensor();
      ASSERT_EQ(got.defined(), wanted[i].defined()) << "leaf " << i;
      if (!got.defined()) continue;
      EXPECT_LE((got - wanted[i]).abs().max().item<double>(), 1e-12) << "leaf " << i;
    }
  }
  void ExpectNothingLeft(ContextId context) {  // A3, A7
    cluster.autograd(0).Release(context);
    cluster.scheduler().RunReady();
    for (size_t rank = 0; rank < 3; ++rank) {
      const autograd::Autograd::Counts counts = cluster.autograd(rank).counts();
      EXPECT_EQ(counts.contexts + counts.tombstones, 0u) << "rank " << rank;
      EXPECT_EQ(counts.passes, 0u) << "rank " << rank;
    }
  }

  Cluster cluster;
  Tensors parameters = Tensors(3);
  at::Tensor x;
  const CallPart remote = [this](size_t here, size_t there, int64_t seed, int64_t depth, const Tensors& args) {
    return cluster.Call<Tensors>(here, there, "part", seed, depth, args);
  };
  const CallPart local = [this](size_t, size_t there, int64_t seed, int64_t depth, const Tensors& args) {
    return RunPart(parameters, local, there, seed, depth, args);
  };
};

TEST_P(Gradients, A1_EqualOneProcess) {
  const ContextId context = cluster.autograd(0).NewContext();
  const at::Tensor loss = DistributedLoss(context);
  ASSERT_EQ(loss.item<double>(), Loss(local).item<double>());
  if (loss.requires_grad()) {
    EXPECT_TRUE(Backward(context, loss));
    ExpectWanted(context);
  }
  ExpectNothingLeft(context);
}

TEST_P(Gradients, A3_AFailedPassLeavesNothingToTheNext) {
  const ContextId context = cluster.autograd(0).NewContext();
  const at::Tensor loss = DistributedLoss(context);
  const int failing = GetParam() % 3;
  const at::Tensor& leaf = parameters[static_cast<size_t>(failing)];
  int calls = 0;
  const unsigned hook = leaf.register_hook([&](const at::Tensor&) -> at::Tensor {
    ++calls;
    throw std::runtime_error("on purpose");
  });
  std::string text;
  const bool first = !loss.requires_grad() || Backward(context, loss, &text);
  leaf.remove_hook(hook);
  EXPECT_EQ(calls, first ? 0 : 1);
  if (!first) {
    EXPECT_EQ(text, "Error on Node " + std::to_string(failing) + ": on purpose");
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(cluster.autograd(rank).counts().passes, 0u);
    EXPECT_TRUE(Backward(context, loss));
  }
  if (loss.requires_grad()) ExpectWanted(context);
  ExpectNothingLeft(context);
}

TEST_P(Gradients, A3_AWorkerMayGoAtAnyMoment) {
  const ContextId context = cluster.autograd(0).NewContext();
  const at::Tensor loss = DistributedLoss(context);
  if (!loss.requires_grad()) return;
  const size_t victim = 1 + static_cast<size_t>(GetParam() % 2);
  // Goes after so many of its turns among the tasks.
  std::function<void(int)> wait = [&](int turns) {
    if (turns > 0) return cluster.scheduler().Post([&wait, turns] { wait(turns - 1); });
    cluster.autograd(victim).Close({.code = ErrorCode::kDisconnected, .text = "the worker has ended"});
    cluster.rpc(victim).Stop("the worker has ended");
  };
  wait(GetParam() % 20);
  std::string text;
  if (Backward(context, loss, &text)) {
    ExpectWanted(context);  // what the victim has committed is still to be seen here
  } else {
    EXPECT_NE(text, "");
  }
  cluster.scheduler().RunReady();
  for (const size_t rank : {size_t{0}, 3 - victim}) {
    EXPECT_EQ(cluster.autograd(rank).counts().passes, 0u) << "rank " << rank;
  }
}

TEST_P(Gradients, A7_ReleaseWhileCallsAreUnderWay) {
  const ContextId context = cluster.autograd(0).NewContext();
  int turns = GetParam() % 40;
  std::function<void()> wait = [&] {
    if (--turns > 0) return cluster.scheduler().Post([&wait] { wait(); });
    cluster.autograd(0).Release(context);
  };
  cluster.scheduler().Post([&wait] { wait(); });
  DistributedLoss(context);
  cluster.scheduler().RunReady();
  ExpectNothingLeft(context);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Gradients, testing::Range(0, 150));

}  // namespace
}  // namespace gradwire::sim
