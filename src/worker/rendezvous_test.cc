// How the ranks of a group find each other, with a store in memory.
#include "worker/rendezvous.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "gradwire/error.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

class MemoryStore final : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> Get(const std::string& key, milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) > 0; })) return std::nullopt;
    return values_[key];
  }
  int64_t Add(const std::string& key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return counters_[key] += amount;
  }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    if (value == expected) value = desired;
    changed_.notify_all();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
};

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
  MemoryStore store;
  std::vector<std::string> keys(4);
  const auto failures = RunRanks(4, [&](uint32_t rank) {
    Rendezvous rendezvous(store, rank, 4, milliseconds(20'000));
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

TEST(RendezvousTest, M4_EachStartOnOneStoreIsAGroupOfItsOwn) {
  MemoryStore store;
  std::string keys[2];
  for (std::string& key : keys) {
    const auto failures = RunRanks(2, [&](uint32_t rank) {
      Rendezvous rendezvous(store, rank, 2, milliseconds(20'000));
      const std::string own = rendezvous.JobKey();
      if (rank == 0) key = own;
      rendezvous.Exchange(MemberNamed("worker" + std::to_string(rank), rank));
      rendezvous.AwaitAllReady(kNobodyGone);
    });
    for (const auto& failure : failures) EXPECT_FALSE(failure) << failure->text;
  }
  EXPECT_NE(keys[0], keys[1]);
}

TEST(RendezvousTest, TwoWorkersWithOneNameAreRefusedOnEveryRank) {
  MemoryStore store;
  const auto failures = RunRanks(3, [&](uint32_t rank) {
    Rendezvous rendezvous(store, rank, 3, milliseconds(20'000));
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
  MemoryStore store;
  Rendezvous rendezvous(store, 1, 4, milliseconds(50));
  store.Set("gradwire/1/unrelated", "");
  const auto failure = FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker1", 1)); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kTimedOut);
  EXPECT_NE(failure->text.find("missing: rank 0, 2, 3"), std::string::npos) << failure->text;
}

TEST(RendezvousTest, WhoHasMetWaitsUntilAllHaveReadTheRecords) {
  MemoryStore store;
  Rendezvous first(store, 0, 2, milliseconds(50));
  Rendezvous second(store, 1, 2, milliseconds(50));
  const auto failure = FailureIfAny([&] { first.AwaitAllReady(kNobodyGone); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kTimedOut);
  second.AwaitAllReady(kNobodyGone);
}

TEST(RendezvousTest, OneThatDiesBeforeAllAreReadyEndsTheMeetingForAll) {
  MemoryStore store;
  const auto failures = RunRanks(4, [&](uint32_t rank) {
    Rendezvous rendezvous(store, rank, 4, milliseconds(0));
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
  MemoryStore store;
  Rendezvous rendezvous(store, 1, 2, milliseconds(1000));
  store.Set("gradwire/1/worker/0", "noise");
  const auto failure = FailureIfAny([&] { rendezvous.Exchange(MemberNamed("worker1", 1)); });
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kInvalid);
  EXPECT_NE(failure->text.find("rank 0"), std::string::npos) << failure->text;
}

}  // namespace
}  // namespace gradwire
