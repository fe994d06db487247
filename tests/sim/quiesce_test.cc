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
      Node& node = nodes_[rank];
      node.quiesce = std::make_unique<Quiesce>(*cluster_[rank].internal);
      node.quiesce->Attach(&cluster_.rpc(rank), nullptr);
      cluster_[rank].on_peer_ended = [&node](const rpc::Peer& peer) { node.quiesce->OnPeerEnded(peer.id.rank); };
      cluster_[rank].functions->Add("relay", [this, rank](int64_t left) {
        ++runs_;
        if (left > 0) SendRelay(rank, (rank + 1) % kWorkers, left - 1);
      });
    }
    for (Node& node : nodes_) node.quiesce->Join();
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
        node.quiesce->Wait(timeout);
      } catch (const Error& error) {
        node.failure = error.what();
      }
      node.over = true;
      node.runs_when_over = runs_;
    });
  }

  // At the step after `step` more: its connections break, with what is on its way there.
  void KillAfter(const std::vector<size_t>& ranks, size_t step) {
    AtStep(cluster_.scheduler(), cluster_.scheduler().steps() + step, [this, ranks] {
      for (size_t rank : ranks) Kill(rank);
    });
  }

  struct Node {
    std::unique_ptr<Quiesce> quiesce;
    bool over = false;
    bool dead = false;
    int64_t runs_when_over = 0;
    std::string failure;
  };
  Node& operator[](size_t rank) { return nodes_[rank]; }

 private:
  void Kill(size_t rank) {
    nodes_[rank].dead = true;
    cluster_.network().Kill(cluster_[rank].address);
    nodes_[rank].quiesce->Abandon("it was killed");
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

}  // namespace
}  // namespace gradwire::sim
