// A3, A7, C1: programs on three or four workers that train at the same time, and one worker that dies or stops at a
// random step. Every backward ends, and no live worker keeps a pass or a context.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "sim/cluster.h"
#include "sim/instrumented.h"
#include "sim/random_program.h"

namespace gradwire::sim {
namespace {

struct Totals {
  int backwards = 0, failed = 0;
  int in_a_pass = 0;  // runs in which a pass was under way when the worker went
};

class Training {
 public:
  Training(uint64_t seed, Totals& totals)
      : totals_(totals), random_(seed), workers_(3 + seed % 2), cluster_(seed, static_cast<int>(workers_)) {
    for (size_t rank = 0; rank < workers_; ++rank) {
      parameters_.push_back(at::rand({4}, at::kDouble).set_requires_grad(true));
      cluster_[rank].functions->Add("part", [this, rank](int64_t part, int64_t depth, Tensors args) {
        return RunPart(parameters_, remote_, rank, part, depth, std::move(args));
      });
    }
  }

  void Run() {
    const size_t victim = random_() % workers_;
    const bool dies = random_() % 2 == 0;
    for (size_t rank = 0; rank < 2; ++rank) {
      ++programs_;
      cluster_.scheduler().Spawn([this, rank, program = static_cast<int64_t>(random_() % 1'000'000)] {
        for (int64_t round = 0; round < 3; ++round) Step(rank, program + round);
        --programs_;
      });
    }
    GoAfter(victim, random_() % 500, dies);
    cluster_.scheduler().RunReady();
    cluster_.scheduler().Advance(std::chrono::minutes(1));  // until pairs are given up
    EXPECT_EQ(programs_, 0) << "a program waits for ever";
    for (size_t rank = 0; rank < workers_; ++rank) {
      const autograd::Autograd::Counts counts = cluster_.autograd(rank).counts();
      EXPECT_EQ(counts.passes, 0u) << "rank " << rank;
      if (rank == victim) continue;
      EXPECT_EQ(counts.contexts + counts.tombstones, 0u) << "rank " << rank;
    }
  }

 private:
  // One round of a program: a context, a loss, two passes over it.
  void Step(size_t rank, int64_t seed) {
    autograd::Autograd& autograd = cluster_.autograd(rank);
    const ContextId context = autograd.NewContext();
    at::Tensor loss;
    try {
      const Surroundings::Scope inside(autograd.Inside(context));
      const at::Tensor x = at::rand({4}, at::kDouble).set_requires_grad(true);
      loss = RunPart(parameters_, remote_, rank, seed, 2, {x * 2})[0].sum();
    } catch (const Error&) {
    }
    for (int pass = 0; pass < 2 && loss.defined() && loss.requires_grad(); ++pass) {
      ++totals_.backwards;
      try {
        autograd.Backward(context, {loss}, true);
      } catch (const Error& error) {
        ++totals_.failed;
        EXPECT_EQ(error.code(), ErrorCode::kDisconnected) << error.failure().text;
        EXPECT_TRUE(gone_) << error.failure().text;
      }
    }
    autograd.Release(context);
  }

  void GoAfter(size_t victim, size_t turns, bool dies) {
    if (turns > 0) return cluster_.scheduler().Post([this, victim, turns, dies] { GoAfter(victim, turns - 1, dies); });
    for (size_t rank = 0; rank < workers_; ++rank) {
      if (cluster_.autograd(rank).counts().passes == 0) continue;
      ++totals_.in_a_pass;
      break;
    }
    gone_ = true;
    if (dies) cluster_.network().Cut(cluster_[victim].address);  // what it has sent may not arrive
    const Failure why{.code = ErrorCode::kDisconnected, .text = "the worker has ended"};
    cluster_.autograd(victim).Close(why);
    cluster_.rpc(victim).Stop(why.text);
  }

  Totals& totals_;
  std::mt19937_64 random_;
  const size_t workers_;
  Tensors parameters_;
  const CallPart remote_ = [this](size_t here, size_t there, int64_t seed, int64_t depth, const Tensors& args) {
    return cluster_.Call<Tensors>(here, there, "part", seed, depth, args);
  };
  int programs_ = 0;
  bool gone_ = false;
  Cluster cluster_;  // ends first
};

TEST(GradientsAndLosses, A3_A7_C1_EveryBackwardEndsAndNothingIsLeft) {
  constexpr uint64_t kSeeds = kIsInstrumented ? 100 : 800;
  Totals totals;
  for (uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Training(seed, totals).Run();
  }
  std::printf("%d passes, %d ended by the loss, %d losses during a pass\n", totals.backwards, totals.failed,
              totals.in_a_pass);
  EXPECT_GT(totals.in_a_pass, static_cast<int>(kSeeds / 10));
}

}  // namespace
}  // namespace gradwire::sim
