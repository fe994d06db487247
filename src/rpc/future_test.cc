#include "gradwire/future.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/test_failure.h"
#include "base/thread_pool.h"
#include "gradwire/call.h"
#include "rpc/surroundings.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

struct Futures : testing::Test {
  template <class T = int>
  Future<T> Make() const {
    return Future<T>(std::make_shared<detail::FutureState>(pool));
  }
  static void Complete(const Future<int>& future, int value) { future.state()->Complete(std::make_shared<int>(value)); }

  const std::shared_ptr<ThreadPool> pool = std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = 2});
};

const Failure kFailure{.code = ErrorCode::kRemote, .text = "no such row", .type_name = "std::out_of_range"};

TEST_F(Futures, AChainOfTenThousandCallbacksNeedsNoStack) {
  const Future<int> first = Make();
  Future<int> last = first;
  for (int i = 0; i < 10'000; ++i) {
    last = last.then([](const Future<int>& before) { return before.wait() + 1; });
  }
  Complete(first, 0);
  EXPECT_EQ(last.wait(), 10'000);
}

constexpr int kLinks = 100'000;

// Its first one is dropped; `token` is held by each link.
Future<int> LongChain(Future<int> first, const std::shared_ptr<int>& token) {
  for (int i = 0; i < kLinks; ++i) first = first.then([token](const Future<int>& before) { return before.wait(); });
  return first;
}

TEST_F(Futures, AChainThatNobodyCompletesEndsAndNeedsNoStackEither) {  // C1
  auto token = std::make_shared<int>();
  Future<int> last = LongChain(Make(), token);
  EXPECT_EQ(FailureOf([&] { last.wait(); }).code, ErrorCode::kInvalid);
  pool->Stop();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(Futures, AChainWhosePoolHasEndedEndsToo) {  // C1
  auto token = std::make_shared<int>();
  const Future<int> first = Make();
  Future<int> last = LongChain(first, token);
  const auto all = collect_all(std::vector<Future<int>>{first, last});
  pool->Stop();
  Complete(first, 1);
  EXPECT_EQ(FailureOf([&] { last.wait(); }).code, ErrorCode::kDisconnected);
  EXPECT_EQ(FailureOf([&] { all.wait(); }).code, ErrorCode::kDisconnected);
  EXPECT_EQ(FailureOf([&] { wait_all(std::vector<Future<int>>{first}); }).code, ErrorCode::kDisconnected);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(Futures, NoneThatIsCollectedIsHeldByTheOthers) {
  auto value = std::make_shared<int>(1);
  std::weak_ptr<detail::FutureState> first;
  std::optional<Future<std::vector<Future<int>>>> all;
  {
    std::vector<Future<int>> futures{Make(), Make()};
    all = collect_all(futures);
    first = futures[0].state();
    futures[1].state()->Complete(value);
  }
  EXPECT_TRUE(first.expired());
  const auto done = all->wait();
  EXPECT_EQ(FailureOf([&] { done[0].wait(); }).code, ErrorCode::kInvalid);
  EXPECT_EQ(done[1].wait(), 1);
}

TEST_F(Futures, WhateverACallbackThrowsFailsTheNext) {  // C5
  const Future<int> future = Make();
  future.add_done_callback([](const Future<int>&) { throw 42; });
  const auto next = future.then([](const Future<int>&) -> int { throw 42; });
  Complete(future, 1);
  EXPECT_EQ(FailureOf([&] { next.wait(); }).code, ErrorCode::kRemote);
}

TEST_F(Futures, CallbacksRunInTheOrderOfTheirAddition) {
  std::vector<int> order;
  const Future<int> future = Make();
  for (int i = 0; i < 50; ++i) future.add_done_callback([&, i](const Future<int>&) { order.push_back(i); });
  Complete(future, 1);
  future.add_done_callback([&](const Future<int>&) { order.push_back(50); });
  future.then([](const Future<int>&) {}).wait();
  ASSERT_EQ(order.size(), 51u);
  for (int i = 0; i <= 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(Futures, CallbacksRunInsideOfWhatTheyWereAddedIn) {  // C2
  const TimePoint deadline{std::chrono::seconds(5)};
  const Future<int> future = Make();
  const auto look = [](const Future<int>&) { return rpc::CurrentDeadline(); };
  std::vector<Future<std::optional<TimePoint>>> seen{future.then(look)};
  {
    const Surroundings::Scope inside(rpc::WithDeadline(deadline));
    seen.push_back(future.then(look));
  }
  seen.push_back(future.then(look));
  {
    const Surroundings::Scope others(rpc::WithDeadline(deadline + std::chrono::seconds(1)));
    Complete(future, 1);
  }
  EXPECT_EQ(wait_all(seen), (std::vector<std::optional<TimePoint>>{std::nullopt, deadline, std::nullopt}));
}

TEST_F(Futures, ACallbackThatThrowsHarmsNoOther) {
  const Future<int> future = Make();
  future.add_done_callback([](const Future<int>&) { throw std::runtime_error("mine"); });
  const auto next = future.then([](const Future<int>& done) { return done.wait(); });
  Complete(future, 3);
  EXPECT_EQ(next.wait(), 3);
}

TEST_F(Futures, ErrorsKeepWhatTheyAreThroughChains) {  // C5
  const Future<int> future = Make();
  const auto last = future.then([](const Future<int>& f) { return f.wait(); }).then([](const Future<int>& f) {
    return std::to_string(f.wait());
  });
  future.state()->Fail(kFailure);
  const Failure failure = FailureOf([&] { last.wait(); });
  EXPECT_EQ(failure.code, kFailure.code);
  EXPECT_EQ(failure.text, kFailure.text);
  EXPECT_EQ(failure.type_name, kFailure.type_name);
}

TEST_F(Futures, AWaitMayBeLimited) {  // C1
  const Future<int> future = Make();
  EXPECT_EQ(FailureOf([&] { future.wait(milliseconds(1)); }).code, ErrorCode::kTimedOut);
  EXPECT_FALSE(future.done());
  Complete(future, 4);
  EXPECT_EQ(future.wait(milliseconds(1)), 4);
}

TEST_F(Futures, AnEndlessLimitIsNone) {  // C1
  const Future<int> future = Make();
  std::atomic<bool> waits{false};
  std::thread completer([&] {
    while (!waits) std::this_thread::yield();
    Complete(future, 4);
  });
  waits = true;
  EXPECT_EQ(future.wait(milliseconds::max()), 4);
  completer.join();
}

TEST_F(Futures, CancelEndsOneWithoutACall) {
  const Future<int> future = Make();
  const auto next = future.then([](const Future<int>& f) { return f.wait(); });
  EXPECT_TRUE(future.cancel());
  EXPECT_FALSE(future.cancel());
  EXPECT_EQ(FailureOf([&] { future.wait(); }).code, ErrorCode::kCancelled);
  EXPECT_EQ(FailureOf([&] { next.wait(); }).code, ErrorCode::kCancelled);
}

// What the worker does with a call that is cancelled: its completion comes before Cancel() returns, or later.
struct CallOf final : CallHandle::Canceller {
  explicit CallOf(std::function<bool()> end) : end(std::move(end)) {}
  bool CancelCall(uint64_t) override { return end(); }
  const std::function<bool()> end;
};

TEST_F(Futures, CancelSaysThatItHasEndedTheCallWhoeverTellsTheFuture) {
  for (const bool completed_first : {true, false}) {
    const Future<int> future = Make();
    const auto call = std::make_shared<CallOf>([&] {
      if (completed_first) future.state()->Fail({.code = ErrorCode::kCancelled});
      return true;
    });
    future.state()->SetCall({call, 1});
    EXPECT_TRUE(future.cancel());
    EXPECT_TRUE(future.done());
    EXPECT_FALSE(future.cancel());
  }
}

TEST_F(Futures, CancelSaysThatAReplyWasFaster) {
  const Future<int> future = Make();
  const auto call = std::make_shared<CallOf>([&] {
    Complete(future, 5);
    return false;
  });
  future.state()->SetCall({call, 1});
  EXPECT_FALSE(future.cancel());
  EXPECT_EQ(future.wait(), 5);
}

TEST_F(Futures, CollectAllWaitsForFailedOnesToo) {
  std::vector<Future<int>> futures{Make(), Make(), Make()};
  const auto all = collect_all(futures);
  futures[1].state()->Fail(kFailure);
  Complete(futures[2], 2);
  EXPECT_FALSE(all.done());
  Complete(futures[0], 0);
  const auto done = all.wait();
  EXPECT_EQ(done[0].wait(), 0);
  EXPECT_EQ(FailureOf([&] { done[1].wait(); }).text, kFailure.text);
  EXPECT_TRUE(collect_all(std::vector<Future<int>>()).wait().empty());
}

TEST_F(Futures, WaitAllReturnsValuesInOrderOrTheFirstError) {
  std::vector<Future<int>> futures{Make(), Make(), Make()};
  std::thread completer([&] {
    for (int i = 2; i >= 0; --i) Complete(futures[static_cast<size_t>(i)], i);
  });
  EXPECT_EQ(wait_all(futures), (std::vector<int>{0, 1, 2}));
  completer.join();
  std::vector<Future<int>> others{Make(), Make()};
  others[1].state()->Fail(kFailure);
  EXPECT_EQ(FailureOf([&] { wait_all(others); }).text, kFailure.text) << "the first one is still pending";
  EXPECT_TRUE(wait_all(std::vector<Future<int>>()).empty());
  wait_all(std::vector<Future<void>>());
}

TEST_F(Futures, ACompletionRacesAnotherAndOneWins) {
  for (int round = 0; round < 2'000; ++round) {
    const Future<int> future = Make();
    std::atomic<int> won{0}, called{0};
    const auto counted = future.then([&](const Future<int>&) { ++called; });
    std::thread failing([&] { won += future.state()->Fail(kFailure); });
    won += future.state()->Complete(std::make_shared<int>(1));
    failing.join();
    counted.wait();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(called, 1);
  }
}

}  // namespace
}  // namespace gradwire
