// Gatherings of whole workers with threads of their own: many at once, and ends in the middle of them. Each step in
// turn is in tests/sim/gather_test.cc.
#include "worker/gather.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/test_failure.h"
#include "gradwire/worker.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

constexpr size_t kWorkers = 4;
constexpr milliseconds kNever{0};

// A fixed group in which each call of OnAll() runs on all workers at once.
class Group {
 public:
  Group() : workers_(kWorkers) {
    const auto store = std::make_shared<TestStore>();
    OnEach([&](size_t rank) {
      WorkerOptions options{.name = NameOf(rank), .rank = static_cast<int>(rank), .world_size = kWorkers};
      options.store = store;
      workers_[rank] = std::make_unique<Worker>(std::move(options));
    });
  }
  ~Group() {
    OnEach([&](size_t rank) {
      if (workers_[rank]) workers_[rank]->shutdown();
    });
  }

  static std::string NameOf(size_t rank) { return "worker" + std::to_string(rank); }
  static void OnEach(const std::function<void(size_t)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kWorkers; ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (auto& thread : threads) thread.join();
  }
  Worker& operator[](size_t rank) { return *workers_[rank]; }
  void Kill(size_t rank) { workers_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Until the other side of what `done` looks at, which no event tells of, has come so far.
void Until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::yield();
}

TEST(GatherOfWorkers, ManySetsAtOnceFromManyThreads) {
  constexpr int64_t kRounds = 50;
  const std::vector<Names> sets{{"worker0", "worker1"}, {"worker1", "worker2", "worker3"}, {"worker3", "worker0"}, {}};
  Group group;
  std::atomic<int64_t> wrong{0}, right{0};
  Group::OnEach([&](size_t rank) {
    std::vector<std::thread> threads;
    for (size_t set = 0; set < sets.size(); ++set) {
      const Names& names = sets[set];
      if (!names.empty() && std::count(names.begin(), names.end(), Group::NameOf(rank)) == 0) continue;
      threads.emplace_back([&, set, rank] {
        for (int64_t round = 0; round < kRounds; ++round) {
          const auto number = static_cast<int64_t>(set) * 1000 + round;
          const auto all = group[rank].all_gather(std::tuple(int64_t(rank), number), sets[set], {.timeout = kNever});
          bool good = all.size() == (sets[set].empty() ? kWorkers : sets[set].size());
          for (const auto& [name, part] : all) {
            good = good && part == std::tuple(int64_t(name.back() - '0'), number);
          }
          ++(good ? right : wrong);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(right, kRounds * 11);  // members of all sets
}

TEST(GatherOfWorkers, TensorsAndReferencesTravelToEach) {
  Group group;
  Group::OnEach([&](size_t rank) {
    const auto whose = group[rank].make_rref<std::string>(Group::NameOf(rank));
    const auto all = group[rank].all_gather(std::tuple(at::full({3}, static_cast<double>(rank)), whose));
    ASSERT_EQ(all.size(), kWorkers);
    for (const auto& [name, part] : all) {
      EXPECT_TRUE(at::equal(std::get<0>(part), at::full({3}, static_cast<double>(name.back() - '0'))));
      EXPECT_EQ(std::get<1>(part).to_here(), name);
    }
    group[rank].barrier();  // nobody drops what others still fetch
  });
}

// C1: without a timeout, and with nobody left to answer but the one that ends.
TEST(GatherOfWorkers, C1_ItsOwnEndEndsTheWaitOfALeader) {
  Group group;
  Failure failure;
  std::thread waiting([&] {
    failure = FailureOf([&] { group[0].barrier({"worker0", "worker3"}, {.timeout = kNever}); });
  });
  Failure other;
  std::thread follower([&] {
    other = FailureOf([&] { group[1].barrier({"worker0", "worker1", "worker3"}, {.timeout = kNever}); });
  });
  Until([&] { return group[0].counts().serving_calls == 2; });  // the parts of worker1 and of itself
  group[0].shutdown(/*graceful=*/false);
  waiting.join();
  follower.join();
  EXPECT_NE(failure.code, ErrorCode::kInternal) << failure.text;
  EXPECT_NE(failure.text.find("'worker0'"), std::string::npos) << failure.text;
  EXPECT_EQ(other.code, ErrorCode::kDisconnected) << other.text;
  EXPECT_NE(other.text.find("'worker0'"), std::string::npos) << other.text;
  EXPECT_EQ(FailureOf([&] { group[0].barrier({"worker0"}); }).code, ErrorCode::kInvalid);
}

// C1: worker0 leads; the one that dies has not come, or leads.
void LoseOneInTheMiddle(size_t mortal) {
  Group group;
  std::vector<std::thread> threads;
  std::vector<Failure> failures(kWorkers);
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    if (rank == mortal) continue;
    threads.emplace_back(
        [&, rank] { failures[rank] = FailureOf([&] { group[rank].barrier({}, {.timeout = kNever}); }); });
  }
  Until([&] { return group[0].counts().serving_calls == 3; });
  group.Kill(mortal);
  for (auto& thread : threads) thread.join();
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    if (rank == mortal) continue;
    EXPECT_EQ(failures[rank].code, ErrorCode::kDisconnected) << failures[rank].text;
    EXPECT_NE(failures[rank].text.find("'" + Group::NameOf(mortal) + "'"), std::string::npos) << failures[rank].text;
    EXPECT_EQ(failures[rank].text.find("group."), std::string::npos) << failures[rank].text;
    // A leader that ends as its Worker does tells them so itself, if there is time.
    const bool names_call = failures[rank].text.find("'barrier'") != std::string::npos;
    const bool told = failures[rank].text == "worker 'worker0' has ended";
    EXPECT_TRUE(mortal != 0 || names_call || told) << failures[rank].text;
  }
  Group::OnEach([&](size_t rank) {
    if (rank == mortal) return;
    Names alive;
    for (size_t other = 0; other < kWorkers; ++other) {
      if (other != mortal) alive.push_back(Group::NameOf(other));
    }
    EXPECT_EQ(group[rank].all_gather(int64_t(rank), alive).size(), kWorkers - 1);
    const Failure again = FailureOf([&] { group[rank].barrier({}, {.timeout = kNever}); });
    EXPECT_EQ(again.code, ErrorCode::kDisconnected) << again.text;
  });
}

TEST(GatherOfWorkers, C1_ALostLeaderIsNamedToAll) { LoseOneInTheMiddle(0); }
TEST(GatherOfWorkers, C1_ALostWorkerIsNamedToAll) { LoseOneInTheMiddle(2); }

TEST(GatherOfWorkers, C1_ATimeoutNamesWhoHasNotComeWhoeverWaits) {
  Group group;
  for (const Names& names : {Names{"worker1", "worker2"}, Names{"worker0", "worker1"}}) {
    const Failure failure = FailureOf([&] { group[1].barrier(names, {.timeout = milliseconds(20)}); });
    EXPECT_EQ(failure.code, ErrorCode::kTimedOut) << failure.text;
  }
  // Led by worker0, which has not come either: it says so itself.
  Failure leader, other;
  std::thread late([&] { other = FailureOf([&] { group[2].barrier({}, {.timeout = kNever}); }); });
  Until([&] { return group[0].counts().serving_calls == 1; });
  const Failure failure = FailureOf([&] { group[1].barrier({}, {.timeout = milliseconds(20)}); });
  late.join();
  EXPECT_EQ(failure.code, ErrorCode::kTimedOut);
  EXPECT_NE(failure.text.find("these have not come: worker0, worker3"), std::string::npos) << failure.text;
  EXPECT_EQ(other.text, failure.text);
}

}  // namespace
}  // namespace gradwire
