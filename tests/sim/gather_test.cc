// Gatherings (C1) in one thread: whatever the interleaving and whoever dies at whatever step, each wait ends, with all
// values or with an error that names who is missing, for all of them alike.
#include "worker/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "rpc/surroundings.h"
#include "sim/at_step.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

constexpr size_t kWorkers = 4;
const Names kAll{"worker0", "worker1", "worker2", "worker3"};

// Refuses the part of a gathering before its send step while it is told to.
class Refusing final : public rpc::Interceptor {
 public:
  void OnSend(rpc::OutgoingCall& call) override {
    if (active && call.request.function == "group.gather") throw Error(ErrorCode::kInvalid, "cannot travel");
  }
  bool active = false;
};

class GatheringGroup {
 public:
  // What became of one worker's part in one gathering.
  struct Result {
    bool over = false;
    std::map<std::string, std::string> values;
    Failure failure{.text = ""};
  };

  explicit GatheringGroup(int seed) : cluster_(static_cast<uint64_t>(seed), kWorkers, nullptr, {refusing_}) {}

  Gather& operator[](size_t rank) { return *cluster_[rank].gather; }
  Cluster& cluster() { return cluster_; }
  Refusing& refusing() { return *refusing_; }
  // Until nothing moves: connections that break are made again, or found to be gone, within a second.
  void RunReady() { cluster_.scheduler().Advance(std::chrono::seconds(1)); }

  // Begins to gather `value`; the program that does so is over when the result is.
  const Result& Start(size_t rank, const Names& names, const std::string& value,
                      milliseconds timeout = milliseconds(0)) {
    Result& result = results_.emplace_back();
    cluster_.scheduler().Spawn([this, rank, names, value, timeout, &result] {
      try {
        for (auto& [name, part] : cluster_[rank].gather->All(EncodeValue(value), names, timeout)) {
          result.values[name] = DecodeValue<std::string>(part);
        }
      } catch (const Error& error) {
        result.failure = error.failure();
      }
      result.over = true;
    });
    return result;
  }

  // Its connections break, with what is on its way there, and nothing of it goes on.
  void Kill(size_t rank) {
    cluster_.network().Kill(cluster_[rank].address);
    cluster_.rpc(rank).Stop("it was killed");
    cluster_[rank].gather->Abandon("it was killed");
    dead_ = rank;
  }
  void KillAfter(size_t rank, size_t steps) { PostKill(rank, cluster_.scheduler().steps() + steps); }
  bool dead(size_t rank) const { return dead_ == rank; }

  size_t open() {
    size_t sum = 0;
    for (size_t rank = 0; rank < kWorkers; ++rank) sum += dead_ == rank ? 0 : cluster_[rank].gather->open();
    return sum;
  }

 private:
  void PostKill(size_t rank, size_t at) {
    AtStep(cluster_.scheduler(), at, [this, rank] { Kill(rank); });
  }

  const std::shared_ptr<Refusing> refusing_ = std::make_shared<Refusing>();
  std::list<Result> results_;
  Cluster cluster_;
  std::optional<size_t> dead_;
};

std::map<std::string, std::string> ValuesOf(const Names& names, const std::string& suffix = "") {
  std::map<std::string, std::string> values;
  for (const std::string& name : names) values[name] = name + suffix;
  return values;
}

void ExpectFailure(const GatheringGroup::Result& result, ErrorCode code, const std::string& text) {
  ASSERT_TRUE(result.over) << "hangs";
  // One that died before the first connection to it was never reached.
  if (code != ErrorCode::kDisconnected || result.failure.code != ErrorCode::kUnreachable) {
    EXPECT_EQ(result.failure.code, code) << result.failure.text;
  }
  EXPECT_NE(result.failure.text.find(text), std::string::npos) << result.failure.text;
}

TEST(Gather, GivesAllPartsToEachInAnyInterleaving) {
  for (int seed = 0; seed < 50; ++seed) {
    GatheringGroup group(seed);
    std::vector<const GatheringGroup::Result*> results;
    for (const std::string& name : kAll) results.push_back(&group.Start(results.size(), {}, name));
    group.RunReady();
    for (const auto* result : results) ASSERT_EQ(result->values, ValuesOf(kAll)) << "seed " << seed;
    EXPECT_EQ(group.open(), 0u);
  }
}

TEST(Gather, SetsAtOnceDoNotDisturbEachOther) {
  const std::vector<Names> sets{
      {"worker0", "worker1"}, {"worker1", "worker2"}, {"worker2"}, kAll, {"worker3", "worker1", "worker3"}};
  for (int seed = 0; seed < 20; ++seed) {
    GatheringGroup group(seed);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::pair<const GatheringGroup::Result*, std::map<std::string, std::string>>> results;
      for (size_t set = 0; set < sets.size(); ++set) {
        const std::string suffix = "/" + std::to_string(set) + "/" + std::to_string(round);
        for (size_t rank = 0; rank < kWorkers; ++rank) {
          if (std::count(sets[set].begin(), sets[set].end(), kAll[rank]) == 0) continue;
          results.emplace_back(&group.Start(rank, sets[set], kAll[rank] + suffix), ValuesOf(sets[set], suffix));
        }
      }
      group.RunReady();
      for (const auto& [result, values] : results) ASSERT_EQ(result->values, values) << "seed " << seed;
    }
    EXPECT_EQ(group.open(), 0u);
  }
}

// Each as fast as it can: one may be three gatherings of a set ahead of another's first.
TEST(Gather, GatheringsOfOneSetComeInOrderHoweverFastEachIs) {
  constexpr int kRounds = 5;
  for (int seed = 0; seed < 30; ++seed) {
    GatheringGroup group(seed);
    int right = 0;
    for (size_t rank = 0; rank < kWorkers; ++rank) {
      group.cluster().scheduler().Spawn([&group, &right, rank] {
        for (int round = 0; round < kRounds; ++round) {
          const std::string suffix = "/" + std::to_string(round);
          std::map<std::string, std::string> values;
          for (auto& [name, part] : group[rank].All(EncodeValue(kAll[rank] + suffix), kAll, milliseconds(0))) {
            values[name] = DecodeValue<std::string>(part);
          }
          right += values == ValuesOf(kAll, suffix);
        }
      });
    }
    group.RunReady();
    EXPECT_EQ(right, kRounds * static_cast<int>(kWorkers)) << "seed " << seed;
    EXPECT_EQ(group.open(), 0u);
  }
}

TEST(Gather, NobodyGoesOnBeforeTheLastHasCome) {
  for (size_t late = 0; late < kWorkers; ++late) {
    GatheringGroup group(static_cast<int>(late));
    std::vector<const GatheringGroup::Result*> results;
    for (size_t rank = 0; rank < kWorkers; ++rank) {
      if (rank != late) results.push_back(&group.Start(rank, kAll, kAll[rank]));
    }
    group.cluster().scheduler().Advance(std::chrono::hours(1));
    for (const auto* result : results) EXPECT_FALSE(result->over);
    results.push_back(&group.Start(late, kAll, kAll[late]));
    group.RunReady();
    for (const auto* result : results) EXPECT_EQ(result->values, ValuesOf(kAll));
  }
}

// Whoever loses patience, the leader or another, ends the gathering for all, who comes too late included.
TEST(C1, ATimeoutNamesWhoHasNotComeToAllOfThem) {
  for (int seed = 0; seed < 10; ++seed) {
    for (const auto& [impatient, late] : {std::pair<size_t, size_t>{0, 2}, {1, 2}, {3, 0}}) {
      GatheringGroup group(seed);
      std::vector<const GatheringGroup::Result*> results;
      for (size_t rank = 0; rank < kWorkers; ++rank) {
        if (rank == late) continue;
        const milliseconds timeout(rank == impatient ? 50 : 60'000);
        results.push_back(&group.Start(rank, kAll, kAll[rank], timeout));
      }
      group.cluster().scheduler().Advance(std::chrono::seconds(2));
      const std::string missing =
          kAll[impatient] + "' gathered with others for more than 50 ms, and these have not " + "come: " + kAll[late];
      for (const auto* result : results) ExpectFailure(*result, ErrorCode::kTimedOut, missing);
      const auto& too_late = group.Start(late, kAll, kAll[late], milliseconds(60'000));
      group.RunReady();
      ExpectFailure(too_late, ErrorCode::kTimedOut, missing);
      EXPECT_EQ(group.open(), 0u);
      results.clear();
      for (size_t rank = 0; rank < kWorkers; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
      group.RunReady();
      for (const auto* result : results) EXPECT_EQ(result->values, ValuesOf(kAll)) << "the next one";
    }
  }
}

// A timeout meets the last part at every step of both.
TEST(C1, ATimeoutThatRacesTheLastPartIsEverybodysOrNobodys) {
  const Names pair{"worker0", "worker1"};
  int passed = 0, failed = 0;
  for (int seed = 0; seed < 300; ++seed) {
    GatheringGroup group(seed);
    const GatheringGroup::Result* leader = nullptr;
    SimScheduler& scheduler = group.cluster().scheduler();
    scheduler.CallAt(scheduler.Now() + milliseconds(50), [&] { leader = &group.Start(0, pair, "worker0"); });
    const auto& impatient = group.Start(1, pair, "worker1", milliseconds(50));
    scheduler.Advance(std::chrono::seconds(5));
    ASSERT_TRUE(leader && leader->over && impatient.over) << "seed " << seed;
    EXPECT_EQ(leader->values, impatient.values) << "seed " << seed;
    EXPECT_EQ(leader->failure.text, impatient.failure.text) << "seed " << seed;
    ++(leader->values.empty() ? failed : passed);
    EXPECT_EQ(group.open(), 0u);
  }
  EXPECT_GT(passed, 0);
  EXPECT_GT(failed, 0);
}

TEST(C2, TheDeadlineOfTheCallThatGathersBindsLeadersAndOthers) {
  for (size_t rank : {0u, 1u}) {
    GatheringGroup group(7);
    Failure failure;
    group.cluster().scheduler().Spawn([&] {
      const Surroundings::Scope scope(rpc::WithDeadline(group.cluster().scheduler().Now() + milliseconds(30)));
      try {
        group[rank].All(EncodeValue(true), {"worker0", "worker1"}, milliseconds(-1));
      } catch (const Error& error) {
        failure = error.failure();
      }
    });
    group.cluster().scheduler().Advance(std::chrono::seconds(2));
    EXPECT_EQ(failure.code, ErrorCode::kTimedOut);
    EXPECT_NE(failure.text.find("more than 30 ms"), std::string::npos) << failure.text;
  }
}

// One dies at each step of a gathering in turn, until the gathering is over before it does.
void DieAtEachStep(size_t mortal) {
  for (int seed = 0; seed < 4; ++seed) {
    bool outlived = false;
    bool by_call = false;  // an error came from the call that carries the part
    for (size_t step = 0; !outlived; ++step) {
      ASSERT_LT(step, 2000u) << "the gathering never ends";
      GatheringGroup group(seed);
      std::vector<const GatheringGroup::Result*> results;
      for (size_t rank = 0; rank < kWorkers; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
      group.KillAfter(mortal, step);
      group.RunReady();
      outlived = results[mortal]->failure.text.empty();
      size_t passed = 0;
      for (size_t rank = 0; rank < kWorkers; ++rank) {
        if (rank == mortal) continue;
        ASSERT_TRUE(results[rank]->over) << kAll[rank] << " hangs; seed " << seed << ", step " << step;
        if (results[rank]->failure.text.empty()) {
          ++passed;
          ASSERT_EQ(results[rank]->values, ValuesOf(kAll));
        } else {
          const std::string& text = results[rank]->failure.text;
          ExpectFailure(*results[rank], ErrorCode::kDisconnected, "'" + kAll[mortal] + "'");
          ASSERT_EQ(text.find("group."), std::string::npos) << text;
          by_call = by_call || text.find("'all_gather' may have run") != std::string::npos;
        }
      }
      // A leader may die having answered some.
      if (mortal != 0) {
        ASSERT_TRUE(passed == 0 || passed == kWorkers - 1) << "seed " << seed << ", step " << step;
      }
      // With the dead one nobody gathers any more; the others do.
      Names alive = kAll;
      alive.erase(alive.begin() + static_cast<int64_t>(mortal));
      for (size_t rank = 0; rank < kWorkers; ++rank) {
        if (rank == mortal) continue;
        const auto& again = group.Start(rank, kAll, kAll[rank]);
        const auto& without = group.Start(rank, alive, kAll[rank]);
        results.push_back(&without);
        group.RunReady();
        ExpectFailure(again, ErrorCode::kDisconnected, "'" + kAll[mortal] + "'");
      }
      for (size_t i = kWorkers; i < results.size(); ++i) ASSERT_EQ(results[i]->values, ValuesOf(alive));
      ASSERT_EQ(group.open(), 0u);
    }
    ASSERT_EQ(by_call, mortal == 0) << "seed " << seed;
  }
}

TEST(C1, TheDeathOfTheLeaderAtAnyStepEndsEachWait) { DieAtEachStep(0); }
TEST(C1, TheDeathOfAnotherAtAnyStepEndsEachWait) { DieAtEachStep(2); }

TEST(C1, OneThatHasNeverTalkedToAnybodyIsMissedWhenItDies) {
  for (bool before : {true, false}) {
    GatheringGroup group(3);
    if (before) group.Kill(3);
    std::vector<const GatheringGroup::Result*> results;
    for (size_t rank = 0; rank < 3; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
    group.RunReady();
    if (!before) {
      for (const auto* result : results) EXPECT_FALSE(result->over);
      group.Kill(3);
      group.RunReady();
    }
    for (const auto* result : results) ExpectFailure(*result, ErrorCode::kDisconnected, "'worker3'");
    EXPECT_EQ(group.open(), 0u);
  }
}

TEST(C1, AGatheringWithOneThatCannotBeReachedFailsAsLongAsItCannot) {
  GatheringGroup group(5);
  std::vector<const GatheringGroup::Result*> results;
  for (size_t rank = 0; rank < 3; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
  group.RunReady();
  const WorkerId late = group.cluster().id(3);
  EXPECT_EQ(group[0].Awaited(), WorkerSet{late}) << "its silence would be a loss";
  const rpc::Peer peer{.id = late, .name = kAll[3]};
  group[0].OnPeerReach(peer, Failure{.code = ErrorCode::kUnreachable, .text = "worker 'worker3' cannot be reached"});
  group.RunReady();
  for (const auto* result : results) ExpectFailure(*result, ErrorCode::kUnreachable, "worker 'worker3' cannot be");
  EXPECT_EQ(group[0].Awaited(), WorkerSet());
  results.clear();
  for (size_t rank = 0; rank < 3; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
  group.RunReady();
  group[0].OnPeerReach(peer, std::nullopt);
  for (int times = 0; times < 2; ++times) results.push_back(&group.Start(3, kAll, kAll[3]));
  group.RunReady();
  for (const auto* result : results) ExpectFailure(*result, ErrorCode::kUnreachable, "worker 'worker3' cannot be");
  EXPECT_EQ(group.open(), 0u) << "all have heard of it, who was late too";
  results.clear();
  for (size_t rank = 0; rank < kWorkers; ++rank) results.push_back(&group.Start(rank, kAll, kAll[rank]));
  group.RunReady();
  for (const auto* result : results) EXPECT_EQ(result->values, ValuesOf(kAll));
  EXPECT_EQ(group.open(), 0u);
}

TEST(C1, TheEndOfItsPartInTheGroupEndsAllThatAWorkerLeads) {
  GatheringGroup group(6);
  const auto& own = group.Start(0, kAll, "worker0");
  group.RunReady();
  group[0].OnFenced({.code = ErrorCode::kDisconnected, .text = "worker 'worker0' was declared lost"});
  EXPECT_FALSE(own.over) << "it may have come under a role, where nobody is answered";
  group.RunReady();
  ExpectFailure(own, ErrorCode::kDisconnected, "was declared lost");
  EXPECT_EQ(group.open(), 0u);
}

// The leader may never gather with the dead: its shutdown would wait for the call of the dead to be answered.
TEST(C1, WhatTheDeadBeganEndsWithThem) {
  GatheringGroup group(9);
  group.Start(1, kAll, "worker1");
  const auto& other = group.Start(2, kAll, "worker2");
  group.RunReady();
  EXPECT_EQ(group.open(), 1u);
  group.Kill(1);
  group.RunReady();
  ExpectFailure(other, ErrorCode::kDisconnected, "'worker1'");
  EXPECT_EQ(group.open(), 0u);
  EXPECT_EQ(group.cluster().rpc(0).counts().serving, 0u);
}

TEST(C1, TheEndOfALeaderEndsItsOwnWaitAndTheOthers) {
  GatheringGroup group(5);
  const auto& leader = group.Start(0, kAll, "worker0");
  const auto& other = group.Start(1, kAll, "worker1");
  group.RunReady();
  group[0].Abandon("worker 'worker0' has shut down");
  group.RunReady();
  ExpectFailure(leader, ErrorCode::kDisconnected, "worker 'worker0' has shut down");
  ExpectFailure(other, ErrorCode::kDisconnected, "worker 'worker0' has shut down");
  const auto& after = group.Start(0, kAll, "worker0");
  const auto& late = group.Start(2, kAll, "worker2");
  group.RunReady();
  ExpectFailure(after, ErrorCode::kInvalid, "worker 'worker0' has shut down");
  ExpectFailure(late, ErrorCode::kDisconnected, "worker 'worker0' has shut down");
  EXPECT_EQ(group.open(), 0u);
}

// The count of gatherings stays the same as that of the others (O5).
TEST(Gather, WhatIsRefusedBeforeItIsSentIsNoGathering) {
  GatheringGroup group(11);
  const Names pair{"worker0", "worker1"};
  const auto& unknown = group.Start(1, {"worker1", "nobody"}, "worker1");
  const auto& outsider = group.Start(1, {"worker0", "worker2"}, "worker1");
  group.RunReady();
  ExpectFailure(unknown, ErrorCode::kUnknownWorker, "'nobody'");
  ExpectFailure(outsider, ErrorCode::kInvalid, "'worker1' is not among those that gather: worker0, worker2");
  group.refusing().active = true;
  const auto& refused = group.Start(1, pair, "worker1");
  group.RunReady();
  ExpectFailure(refused, ErrorCode::kInvalid, "cannot travel");
  group.refusing().active = false;
  const auto& other = group.Start(1, pair, "worker1");
  const auto& leader = group.Start(0, pair, "worker0");
  group.RunReady();
  EXPECT_EQ(other.values, ValuesOf(pair));
  EXPECT_EQ(leader.values, ValuesOf(pair));
}

}  // namespace
}  // namespace gradwire::sim
