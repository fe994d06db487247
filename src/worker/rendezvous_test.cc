// How the ranks of a group find each other, with a store in memory.
#include "worker/rendezvous.h"

#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "gradwire/error.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

rpc::Member MemberNamed(const std::string& name, uint32_t rank) {
  return {.peer = {.id = {.rank = rank, .incarnation = 70 + rank}, .name = name},
          .addresses = {"tcp://127.0.0.1:" + std::to_string(4000 + rank)}};
}

std::optional<Failure> FailureIfAny(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.failure();
  }
  return std::nullopt;
}

rpc::Member MemberOfLife(uint32_t life, uint32_t rank) {
  rpc::Member member = MemberNamed("worker" + std::to_string(rank), rank);
  member.peer.id.incarnation = 1000 * life + rank;
  return member;
}

const auto kNobodyGone = [](uint32_t) { return false; };

// Runs `body` for each rank on a thread of its own; what each threw.
std::vector<std::optional<Failure>> RunRanks(uint32_t ranks, const std::function<void(uint32_t)>& body) {
  std::vector<std::optional<Failure>> failures(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { failures[rank] = FailureIfAny([&] { body(rank); }); });
  }
  for (auto& thread : threads) thread.join();
  return failures;
}

TEST(WorkerName, IsLettersDigitsAndThreeSigns) {
  for (const char* good : {"a", "worker:0", "A_b-9", "0"}) CheckWorkerName(good);
  CheckWorkerName(std::string(127, 'x'));
  for (const std::string& bad : {std::string(), std::string(128, 'x'), std::string("a b"), std::string("a/b"),
                                 std::string("\xc3\xbc"), std::string("a\0", 2)}) {
    const auto failure = FailureIfAny([&] { CheckWorkerName(bad); });
    ASSERT_TRUE(failure) << bad;
    EXPECT_EQ(failure->code, ErrorCode::kInvalid);
    EXPECT_NE(failure->text.find("'" + bad + "'"), std::string::npos);
  }
}

TEST(RendezvousTest, AllRanksLearnOfAllAndShareAKey) {
  TestStore store;
  std::vector<std::string> keys(4);
  const auto failures = RunRanks(4, [&](uint32_t rank) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = 4, .limit = milliseconds(20'000)});
    keys[rank] = rendezvous.JobKey();
    const auto members = rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank));
    rendezvous.AwaitAllReady(kNobodyGone);
    ASSERT_EQ(members.size(), 4u);
    for (uint32_t other = 0; other < 4; ++other) {
      EXPECT_EQ(members[other].peer.name, "worker" + std::to_string(other));
      EXPECT_EQ(members[other].peer.id, (WorkerId{.rank = other, .incarnation = 70 + other}));
      EXPECT_EQ(members[other].addresses, MemberNamed("", other).addresses);
    }
  });
  for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->text;
  for (const std::string& key : keys) EXPECT_EQ(key, keys[0]);
  EXPECT_GE(keys[0].size(), 32u);
}

// The members of one life of each rank; what has failed.
std::vector<std::optional<Failure>> MeetOnce(Store& store, uint32_t ranks, uint32_t life) {
  return RunRanks(ranks, [&](uint32_t rank) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = ranks, .limit = milliseconds(20'000)});
    const auto members = rendezvous.Exchange(MemberOfLife(life, rank));
    ASSERT_EQ(members.size(), ranks);
    for (uint32_t other = 0; other < ranks; ++other) {
      EXPECT_EQ(members[other].peer.id, MemberOfLife(life, other).peer.id) << "rank " << rank;
    }
    rendezvous.AwaitAllReady(kNobodyGone);
  });
}

TEST(RendezvousTest, M4_GroupsOfAnySizeMeetOneAfterAnotherOnOneStore) {
  TestStore store;
  uint32_t life = 0;
  for (const uint32_t ranks : {2, 3, 1, 2}) {
    for (const auto& failure : MeetOnce(store, ranks, ++life)) EXPECT_FALSE(failure) << failure->text;
  }
}

// Whichever ranks began before, how far they came and how often.
TEST(RendezvousTest, M4_NothingCountsThatTheDeadHaveLeft) {
  TestStore store;
  uint32_t life = 0;
  const auto begin_and_die = [&](uint32_t rank, uint32_t ranks) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = ranks, .limit = milliseconds(1)});
    rendezvous.JobKey();
    EXPECT_TRUE(FailureIfAny([&] { rendezvous.Exchange(MemberOfLife(life, rank)); }));
  };
  for (const std::vector<uint32_t>& begun :
       std::vector<std::vector<uint32_t>>{{0}, {1}, {2, 1}, {0, 1, 2}, {1, 0, 0, 2}, {2, 2, 2}}) {
    ++life;
    for (const uint32_t rank : begun) begin_and_die(rank, 3);
    begin_and_die(begun[0], 4);  // of another size
    for (const auto& failure : MeetOnce(store, 3, ++life)) EXPECT_FALSE(failure) << failure->text;
  }
}

TEST(RendezvousTest, M4_WhoWaitsMeetsTheNextRankZeroWhenTheFirstDies) {
  TestStore store;
  const rpc::Member follower = MemberOfLife(1, 1);
  std::thread waits([&] {
    Rendezvous rendezvous(store, {.rank = 1, .world_size = 2, .limit = milliseconds(0)});
    EXPECT_EQ(rendezvous.Exchange(follower)[0].peer.id, MemberOfLife(2, 0).peer.id);
  });
  {
    const Rendezvous dies(store, {.rank = 0, .world_size = 2, .limit = milliseconds(0)});
    EXPECT_TRUE(store.Get("gradwire/1/worker/1", milliseconds(20'000)));
  }
  Rendezvous lives(store, {.rank = 0, .world_size = 2, .limit = milliseconds(0)});
  EXPECT_EQ(lives.Exchange(MemberOfLife(2, 0))[1].peer.id, follower.peer.id);
  waits.join();
}

TEST(RendezvousTest, TwoWorkersWithOneNameAreRefusedOnEveryRank) {
  TestStore store;
  const auto failures = RunRanks(3, [&](uint32_t rank) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = 3, .limit = milliseconds(20'000)});
    rendezvous.Exchange(MemberNamed(rank == 1 ? "other" : "same", rank));
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, ErrorCode::kInvalid);
    EXPECT_NE(failure->text.find("'same'"), std::string::npos) << failure->text;
    EXPECT_NE(failure->text.find("is not unique"), std::string::npos) << failure->text;
  }
}

TEST(RendezvousTest, MissingRanksAreNamedWhenTheLimitHasPassed) {
  TestStore store;
  Rendezvous rendezvous(store, {.rank = 1, .world_size = 4, .limit = milliseconds(50)});
  const auto failure = FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker1", 1)); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kTimedOut);
  EXPECT_NE(failure->text.find("missing: rank 0, 2, 3"), std::string::npos) << failure->text;
}

TEST(RendezvousTest, MissingRanksAreNamedOnEveryRank) {
  TestStore store;
  const auto failures = RunRanks(3, [&](uint32_t rank) {
    const milliseconds limit(rank == 0 ? 2000 : 0);
    Rendezvous rendezvous(store, {.rank = rank, .world_size = 5, .limit = limit});
    rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank));
  });
  for (const auto& failure : failures) {
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, ErrorCode::kTimedOut);
    EXPECT_NE(failure->text.find("missing: rank 3, 4"), std::string::npos) << failure->text;
  }
}

TEST(RendezvousTest, AGroupOfAnotherSizeIsToldOfWhenTheLimitHasPassed) {
  TestStore store;
  const Rendezvous other(store, {.rank = 0, .world_size = 7, .limit = milliseconds(0)});
  Rendezvous rendezvous(store, {.rank = 1, .world_size = 2, .limit = milliseconds(50)});
  const auto failure = FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker1", 1)); });
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->text.find("Rank 0 began a group of 7 workers"), std::string::npos) << failure->text;
}

TEST(RendezvousTest, WhoWaitsSaysForWhom) {
  TestStore store;
  std::mutex mutex;
  std::string said;
  const LogSink before = SetLogSink([&](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kWarning && said.empty()) said = text;
  });
  for (const uint32_t rank : {0, 1}) {
    Rendezvous rendezvous(store,
                          {.rank = rank, .world_size = 3, .limit = milliseconds(50), .tell_every = milliseconds(1)});
    EXPECT_TRUE(FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank)); }));
    EXPECT_TRUE(FlushLog(std::chrono::seconds(20)));
    const std::lock_guard lock(mutex);
    const std::string whom = rank == 0 ? "missing: rank 1, 2;" : "missing: rank 0, 2;";
    EXPECT_NE(said.find(whom), std::string::npos) << said;
    EXPECT_NE(said.find("init_timeout"), std::string::npos) << said;
    said.clear();
  }
  SetLogSink(before);
}

TEST(RendezvousTest, WhoHasMetWaitsUntilAllHaveReadTheRecords) {
  TestStore store;
  const auto failures = RunRanks(2, [&](uint32_t rank) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = 2, .limit = milliseconds(2000)});
    rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank));
    if (rank == 0) rendezvous.AwaitAllReady(kNobodyGone);
  });
  ASSERT_TRUE(failures[0]);
  EXPECT_EQ(failures[0]->code, ErrorCode::kTimedOut);
}

TEST(RendezvousTest, OneThatDiesBeforeAllAreReadyEndsTheMeetingForAll) {
  TestStore store;
  const auto failures = RunRanks(4, [&](uint32_t rank) {
    Rendezvous rendezvous(store, {.rank = rank, .world_size = 4, .limit = milliseconds(0)});
    rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank));
    if (rank != 2) rendezvous.AwaitAllReady([](uint32_t other) { return other == 2; });
  });
  for (uint32_t rank : {0u, 1u, 3u}) {
    ASSERT_TRUE(failures[rank]) << rank;
    EXPECT_EQ(failures[rank]->code, ErrorCode::kDisconnected);
    EXPECT_NE(failures[rank]->text.find("rank 2 has died"), std::string::npos) << failures[rank]->text;
  }
}

TEST(RendezvousTest, ARecordThatIsNoneIsAnErrorThatNamesTheRank) {
  TestStore store;
  Rendezvous rendezvous(store, {.rank = 0, .world_size = 2, .limit = milliseconds(1000)});
  store.Set("gradwire/1/worker/1", "noise");
  const auto failure = FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker0", 0)); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kInvalid);
  EXPECT_NE(failure->text.find("rank 1"), std::string::npos) << failure->text;
}

}  // namespace
}  // namespace gradwire
