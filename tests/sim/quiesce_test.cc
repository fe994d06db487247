// The end of a group (M2) in one thread: whoever dies at whatever step, the others end without error or hang.
#include "worker/quiesce.h"

#include <gtest/gtest.h>

#include <array>

#include "sim/at_step.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

constexpr int kOrders = 10;

// A group whose workers wait in one round; their calls may go on meanwhile.
class LeavingGroup {
 public:
  static constexpr size_t kWorkers = 4;

  explicit LeavingGroup(int seed) : cluster_(static_cast<uint64_t>(seed), kWorkers) {
    for (size_t rank = 0; rank < kWorkers; ++rank) {
      cluster_[rank].functions->Add("relay", [this, rank](int64_t left) {
        ++runs_;
        if (left > 0) SendRelay(rank, (rank + 1) % kWorkers, left - 1);
      });
    }
    for (size_t rank = 0; rank < kWorkers; ++rank) cluster_[rank].quiesce->Join();
    cluster_.scheduler().RunReady();
  }

  Cluster& cluster() { return cluster_; }
  int64_t runs() const { return runs_; }

  void SendRelay(size_t from, size_t to, int64_t left) {
    rpc::Call call;
    call.to = cluster_.id(to);
    call.function = "relay";
    call.args = EncodeValue(std::tuple<int64_t>(left));
    cluster_.rpc(from).Send(std::move(call), [](Outcome) {});
  }

  void StartWait(size_t rank, std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    cluster_.scheduler().Spawn([this, rank, timeout] {
      Node& node = nodes_[rank];
      try {
        cluster_[rank].quiesce->Wait(timeout);
      } catch (const Error& error) {
        node.failure = error.what();
      }
      node.over = true;
      node.runs_when_over = runs_;
      if (leave_when_over) cluster_.rpc(rank).Stop("it has shut down");
    });
  }

  // At the step after `step` more: its connections break, with what is on its way there.
  void KillAfter(const std::vector<size_t>& ranks, size_t step) {
    AtStep(cluster_.scheduler(), cluster_.scheduler().steps() + step, [this, ranks] {
      for (size_t rank : ranks) Kill(rank);
    });
  }

  // Two live workers can reach each other no more, or again, and know it.
  void Part(size_t a, size_t b, bool reached = false) {
    cluster_[a].quiesce->OnPeerReach(static_cast<uint32_t>(b), reached);
    cluster_[b].quiesce->OnPeerReach(static_cast<uint32_t>(a), reached);
  }
  // `length` 0: for good.
  void PartAfter(size_t a, size_t b, size_t step, size_t length) {
    SimScheduler& scheduler = cluster_.scheduler();
    AtStep(scheduler, scheduler.steps() + step, [this, &scheduler, a, b, length] {
      Part(a, b);
      if (length > 0) AtStep(scheduler, scheduler.steps() + length, [this, a, b] { Part(a, b, /*reached=*/true); });
    });
  }

  struct Node {
    bool over = false;
    bool dead = false;
    int64_t runs_when_over = 0;
    std::string failure;
  };
  Node& operator[](size_t rank) { return nodes_[rank]; }

  bool leave_when_over = false;

 private:
  void Kill(size_t rank) {
    nodes_[rank].dead = true;
    cluster_.network().Kill(cluster_[rank].address);
    cluster_[rank].quiesce->Abandon("it was killed");
    cluster_.rpc(rank).Stop("it was killed");
  }

  std::array<Node, kWorkers> nodes_;
  Cluster cluster_;
  int64_t runs_ = 0;
};

TEST(M2, NobodyEndsBeforeAllHaveArrivedAndTheWorkIsDone) {
  for (int seed = 0; seed < 50; ++seed) {
    LeavingGroup group(seed);
    group.SendRelay(1, 2, 20);
    for (size_t rank = 0; rank + 1 < LeavingGroup::kWorkers; ++rank) group.StartWait(rank);
    group.cluster().scheduler().RunReady();
    group.cluster().scheduler().Advance(std::chrono::minutes(5));
    for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank)
      EXPECT_FALSE(group[rank].over) << "worker3 has not arrived";
    group.SendRelay(3, 0, 20);
    group.StartWait(3);
    group.cluster().scheduler().Advance(std::chrono::minutes(5));
    for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) {
      EXPECT_TRUE(group[rank].over) << "seed " << seed;
      EXPECT_EQ(group[rank].failure, "");
      EXPECT_EQ(group[rank].runs_when_over, 42);
    }
  }
}

TEST(M2, ATimeoutEndsTheWaitForOneThatLivesAndIsSilent) {
  LeavingGroup group(1);
  std::vector<std::shared_ptr<IncomingCall>> kept;
  group.cluster()[2].internal->Remove("group.count");
  group.cluster()[2].internal->AddHandler("group.count",
                                          [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); },
                                          {.is_ordered = true, .is_internal = true});
  for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) group.StartWait(rank, std::chrono::seconds(5));
  group.cluster().scheduler().Advance(std::chrono::minutes(5));
  EXPECT_TRUE(group[0].over);
  EXPECT_NE(group[0].failure.find("worker2"), std::string::npos) << group[0].failure;
  for (const auto& call : kept) call->Fail({});
  group.cluster().scheduler().RunReady();
}

// One dies at each step of the round in turn, until the round is over before it does.
void DieAtEachStep(std::vector<size_t> mortals) {
  for (int seed = 0; seed < kOrders; ++seed) {
    bool outlived = false;
    for (size_t step = 0; !outlived; step += mortals.size() == 1 ? 1 : 3) {
      ASSERT_LT(step, 2000u) << "the round never ends";
      LeavingGroup group(seed);
      group.SendRelay(1, 2, 5);
      for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) group.StartWait(rank);
      group.KillAfter(mortals, step);
      group.cluster().scheduler().Advance(std::chrono::minutes(5));
      outlived = true;
      for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) {
        ASSERT_TRUE(group[rank].over) << "worker" << rank << " hangs; seed " << seed << ", step " << step;
        if (group[rank].dead && !group[rank].failure.empty()) outlived = false;
        ASSERT_TRUE(group[rank].dead || group[rank].failure.empty())
            << "worker" << rank << ": " << group[rank].failure << "; seed " << seed << ", step " << step;
      }
    }
  }
}

TEST(M2, TheDeathOfTheLeaderAtAnyStepEndsNobodyElsesShutdown) { DieAtEachStep({0}); }
TEST(M2, TheDeathOfAFollowerAtAnyStepEndsNobodyElsesShutdown) { DieAtEachStep({2}); }
TEST(M2, NeitherDoTheDeathsOfTheFirstTwoLeaders) { DieAtEachStep({0, 1}); }

TEST(M2, APairThatIsPartedAtAnyStepForAWhileOrForGoodKeepsNobody) {
  for (const auto& [a, b] : {std::pair<size_t, size_t>{0, 1}, {0, 3}, {1, 2}}) {
    for (const size_t length : {7u, 40u, 0u}) {
      for (size_t step = 0; step < 150; step += 3) {
        LeavingGroup group(static_cast<int>(step));
        group.leave_when_over = true;
        group.SendRelay(1, 2, 5);
        for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) group.StartWait(rank);
        group.PartAfter(a, b, step, length);
        group.cluster().scheduler().Advance(std::chrono::minutes(5));
        for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) {
          ASSERT_TRUE(group[rank].over) << "worker" << rank << " hangs; " << a << " and " << b << " parted at step "
                                        << step << " for " << length;
          ASSERT_EQ(group[rank].failure, "");
        }
      }
    }
  }
}

TEST(M2, OneThatIsReachedAgainIsWaitedFor) {
  for (int seed = 0; seed < kOrders; ++seed) {
    LeavingGroup group(seed);
    group.Part(0, 3);
    for (size_t rank : {1u, 2u}) group.StartWait(rank);
    group.cluster().scheduler().RunReady();
    group.Part(0, 3, /*reached=*/true);
    group.StartWait(0);
    group.cluster().scheduler().Advance(std::chrono::minutes(5));
    for (size_t rank : {0u, 1u, 2u}) EXPECT_FALSE(group[rank].over) << "worker3 has not arrived";
    group.StartWait(3);
    group.cluster().scheduler().Advance(std::chrono::minutes(5));
    for (size_t rank = 0; rank < LeavingGroup::kWorkers; ++rank) {
      EXPECT_TRUE(group[rank].over) << "worker" << rank << ", seed " << seed;
      EXPECT_EQ(group[rank].failure, "");
    }
  }
}

}  // namespace
}  // namespace gradwire::sim
