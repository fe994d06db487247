// M1 with time: who is declared lost when, what the lost one learns, and that nobody is declared lost without cause.
#include "rpc/group.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "rpc/test_group.h"

namespace gradwire::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLimit{10'000};

// All of them are in this one view.
testing::AssertionResult AllHaveView(GroupNetwork& network, std::initializer_list<int> workers, uint64_t epoch) {
  const WorkerSet members = GroupNetwork::Ids(workers);
  for (int worker : workers) {
    Group& group = *network[worker].group;
    if (group.members() != members || group.epoch() != epoch || !network[worker].fenced.empty()) {
      return testing::AssertionFailure() << "worker " << worker << " has epoch " << group.epoch() << " with "
                                         << group.members().size() << " members; " << network[worker].fenced;
    }
  }
  return testing::AssertionSuccess();
}

TEST(Group, AnIdleGroupStaysWholeAndBeatsPerWorkerAndNotPerPair) {
  GroupNetwork network(16, kLimit);
  network.Pass(seconds(100));
  EXPECT_TRUE(AllHaveView(network, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 1));
  size_t letters = 0;
  for (int i = 1; i < 16; ++i) letters += network[i].letters;
  EXPECT_LE(letters, 15u * 100 * 3);  // a beat and an answer a second each, with the coordinator alone
  EXPECT_GE(letters, 15u * 50);
}

TEST(Group, AKilledWorkerIsLostForAllWithinASecond) {
  for (int victim = 0; victim < 4; ++victim) {
    GroupNetwork network(4, kLimit);
    network.Pass(seconds(3));
    network.Kill(victim);
    network.Pass(seconds(1));
    WorkerSet rest = GroupNetwork::Ids({0, 1, 2, 3});
    rest.erase(GroupNetwork::Id(victim));
    for (const WorkerId& worker : rest) {
      auto& machine = network[static_cast<int>(worker.rank)];
      EXPECT_EQ(machine.group->members(), rest) << worker.rank << " when " << victim << " was killed";
      EXPECT_EQ(machine.ended[GroupNetwork::Id(victim)], "worker 'w" + std::to_string(victim) +
                                                             "' was declared lost by the group in epoch 2 "
                                                             "(nobody listens there)");
    }
  }
}

TEST(Group, AFrozenWorkerIsLostWithinTheLimitAndTwoSecondsAndLearnsItWhenItThaws) {
  for (int workers : {2, 3, 4}) {
    for (int victim = 0; victim < workers; ++victim) {
      GroupNetwork network(workers, kLimit);
      network.Pass(milliseconds(3'300));
      network.Freeze(victim);
      network.Pass(kLimit - seconds(2));
      for (int i = 0; i < workers; ++i) EXPECT_EQ(network[i].group->epoch(), 1u);  // not before the limit
      network.Pass(seconds(4));
      for (int i = 0; i < workers; ++i) {
        if (i == victim) continue;
        EXPECT_EQ(network[i].group->members().size(), static_cast<size_t>(workers - 1)) << victim << " of " << workers;
        const std::string why = network[i].ended[GroupNetwork::Id(victim)];
        EXPECT_NE(why.find("was declared lost by the group in epoch 2 (silent for 11."), std::string::npos) << why;
      }
      network.Thaw(victim);
      network.Pass(seconds(1));
      EXPECT_NE(network[victim].fenced.find("w" + std::to_string(victim) +
                                            "' was declared lost by the group in epoch 2 (silent for 11."),
                std::string::npos)
          << network[victim].fenced;
    }
  }
}

TEST(Group, AFreezeShorterThanTheLimitChangesNothing) {
  for (int victim = 0; victim < 3; ++victim) {
    GroupNetwork network(3, kLimit);
    network.Pass(seconds(3));
    for (int i = 0; i < 5; ++i) {
      network.Freeze(victim);
      network.Pass(seconds(8));
      network.Thaw(victim);
      network.Pass(seconds(2));
    }
    EXPECT_TRUE(AllHaveView(network, {0, 1, 2}, 1));
  }
}

TEST(Group, AllFrozenAtOnceAndThawedStayTogether) {
  GroupNetwork network(4, kLimit);
  network.Pass(seconds(3));
  for (int i = 0; i < 4; ++i) network.Freeze(i);
  network.Pass(seconds(60));
  for (int i = 0; i < 4; ++i) network.Thaw(i);
  network.Pass(seconds(30));
  EXPECT_TRUE(AllHaveView(network, {0, 1, 2, 3}, 1));
}

TEST(Group, ACutPairIsNobodysEndButItsCallsFail) {
  GroupNetwork network(3, kLimit);
  network[1].awaited = GroupNetwork::Ids({2});
  network.Pass(seconds(3));
  network.Cut(1, 2);
  network.Pass(kLimit + seconds(2));
  EXPECT_EQ(network[1].failed.size(), 1u) << "known as soon as a loss would be";
  network.Pass(seconds(60));
  EXPECT_TRUE(AllHaveView(network, {0, 1, 2}, 1));
  EXPECT_EQ(network[1].failed[GroupNetwork::Id(2)],
            "worker 'w2' cannot be reached from here, though others reach it");
}

TEST(Group, TheCoordinatorItselfMayBePartOfACutPair) {
  GroupNetwork network(3, kLimit);
  network.Pass(seconds(3));
  network.Cut(0, 2);
  network.Pass(seconds(60));
  EXPECT_TRUE(AllHaveView(network, {0, 1, 2}, 1));
  EXPECT_EQ(network[0].failed.size(), 1u);
  network.Mend();
  network.Pass(seconds(30));
  EXPECT_TRUE(network[0].failed.empty()) << "it is told that the pair is whole again";
  network.Kill(1);
  network.Pass(seconds(1));
  EXPECT_TRUE(AllHaveView(network, {0, 2}, 2));
}

TEST(Group, OneSideOfAPartitionGoesOnAndTheOtherEnds) {
  GroupNetwork network(5, kLimit);
  network.Pass(seconds(3));
  for (int a : {0, 1}) {
    for (int b : {2, 3, 4}) network.Cut(a, b);
  }
  network.Pass(seconds(40));
  EXPECT_TRUE(AllHaveView(network, {2, 3, 4}, 2));
  for (int i : {0, 1}) {
    EXPECT_NE(network[i].fenced.find("is cut off from the group: reached 2 of 5 workers"), std::string::npos)
        << network[i].fenced;
  }
}

TEST(Group, EachSideOfAPartitionGoesOnWhereThatIsThePolicy) {
  GroupNetwork network(4, kLimit, Partition::kEvery);
  network.Pass(seconds(3));
  for (int a : {0, 1}) {
    for (int b : {2, 3}) network.Cut(a, b);
  }
  network.Pass(seconds(60));
  EXPECT_EQ(network[0].group->members(), GroupNetwork::Ids({0, 1}));
  EXPECT_EQ(network[3].group->members(), GroupNetwork::Ids({2, 3}));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(network[i].fenced, "");
}

TEST(Group, AKilledCoordinatorAndAFrozenSecondAreBothFound) {
  GroupNetwork network(4, kLimit);
  network.Pass(seconds(3));
  network.Freeze(1);
  network.Pass(seconds(5));
  network.Kill(0);
  network.Pass(seconds(25));
  EXPECT_TRUE(AllHaveView(network, {2, 3}, network[2].group->epoch()));
}

TEST(Group, InAnOpenGroupThePairAloneDecidesOnWhoIsWaitedFor) {
  GroupNetwork network(3, kLimit, Partition::kMajority, /*open=*/true);
  network[0].awaited = GroupNetwork::Ids({1, 2});
  network.Pass(seconds(30));
  EXPECT_TRUE(network[0].ended.empty());
  network.Freeze(1);
  network.Pass(seconds(12));
  EXPECT_EQ(network[0].ended.size(), 1u);
  EXPECT_EQ(network[0].ended[GroupNetwork::Id(1)].rfind("worker 'w1' is silent for 10.", 0), 0u)
      << network[0].ended[GroupNetwork::Id(1)];
  EXPECT_TRUE(network[2].ended.empty());  // it waits for nobody
}

TEST(Group, ABrokenPathIsASuspicionOnlyWhereTheMachineAcceptsNoConnection) {
  const Failure broken{.code = ErrorCode::kDisconnected, .text = "the line broke"};
  for (const bool open : {false, true}) {
    for (const bool cut : {false, true}) {
      GroupNetwork network(3, kLimit, Partition::kMajority, open);
      network[0].awaited = GroupNetwork::Ids({1});
      network.Pass(seconds(3));
      network.Freeze(1);
      if (cut) network.Cut(0, 1);
      network[0].group->OnNoPath(GroupNetwork::Id(1), broken);
      network.Pass(seconds(5));
      EXPECT_EQ(network[0].ended.size() + (network[0].group->epoch() - 1), cut ? (open ? 1u : 2u) : 0u)
          << open << ", and it may be frozen for less than the limit";
      network.Pass(seconds(9));
      EXPECT_EQ(network[0].ended.size(), 1u);
    }
  }
}

// Two faults out of five kinds at random times; in the end all that is left has one view of exactly those who serve.
TEST(Group, RandomFaultsLeaveOneViewOfThoseWhoServe) {
  size_t views = 0, fenced = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
    GroupNetwork network(4, kLimit);
    std::set<int> dead, frozen;
    for (int fault = 0; fault < 2; ++fault) {
      network.Pass(milliseconds(pick(20'000)));
      const int victim = pick(4), other = (victim + 1 + pick(3)) % 4;
      switch (pick(4)) {
        case 0: network.Kill(victim), dead.insert(victim); break;
        case 1: network.Freeze(victim), frozen.insert(victim); break;
        case 2: network.Cut(victim, other); break;
        default:
          for (int i = 0; i < 4; ++i) {
            if (i != victim) network.Cut(victim, i);
          }
      }
    }
    network.Pass(milliseconds(pick(40'000)));
    network.Mend();
    for (int worker : frozen) {
      if (!dead.contains(worker)) network.Thaw(worker);
    }
    network.Pass(seconds(120));
    WorkerSet serving;
    for (int i = 0; i < 4; ++i) {
      if (!dead.contains(i) && network[i].fenced.empty()) serving.insert(GroupNetwork::Id(i));
      fenced += !network[i].fenced.empty();
    }
    for (const WorkerId& worker : serving) {
      const Group& group = *network[static_cast<int>(worker.rank)].group;
      ASSERT_EQ(group.members(), serving) << "seed " << seed << ", worker " << worker.rank;
      views += group.epoch() > 1;
    }
  }
  EXPECT_GT(views, 100u);
  EXPECT_GT(fenced, 50u);
}

TEST(Group, BytesThatNoWorkerSendsAreRefused) {
  GroupNetwork network(2, kLimit);
  EXPECT_THROW(network[0].group->OnLetter(GroupNetwork::Id(1), "nonsense"), Error);
}

}  // namespace
}  // namespace gradwire::rpc
