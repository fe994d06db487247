// Back-pressure between workers in one thread: who waits, who does not, and that all waits end.
#include <gtest/gtest.h>

#include "rpc/credit.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

using rpc::Credit;
using std::chrono::milliseconds;

class Backpressure : public testing::TestWithParam<int> {
 protected:
  void Start(std::vector<Fault> faults = {}) {
    std::shared_ptr<Faults> given;
    if (!faults.empty()) given = std::make_shared<Faults>(std::move(faults));
    cluster = std::make_unique<Cluster>(static_cast<uint64_t>(GetParam()), 2, given);
    (*cluster)[1].functions->Add("count", [this](int64_t value) { return ++runs, value; });
    (*cluster)[1].functions->Add("late", [](int64_t value) { return value; });
    (*cluster)[0].functions->Add("same", [](int64_t value) { return value; });
  }
  CallHandle Send(const std::string& function, milliseconds timeout = milliseconds(0)) {
    rpc::Call call;
    call.to = cluster->id(1);
    call.function = function;
    call.args = EncodeValue(std::tuple<int64_t>(1));
    call.options.timeout = timeout;
    return cluster->rpc(0).Send(std::move(call), [this](Outcome outcome) {
      ++ended;
      if (!outcome.ok()) failures.push_back(outcome.failure().code);
    });
  }
  // From a task, which is never made to wait.
  void SendInTask(std::function<void()> send) {
    cluster->scheduler().Post(std::move(send));
    cluster->scheduler().RunReady();
  }
  // More calls than may wait on worker1 until `late` ones begin, after 10 s.
  void FillWindow() {
    SendInTask([this] {
      for (uint64_t i = 0; i < Credit::kWindow; ++i) Send("late");
    });
    ASSERT_EQ(cluster->rpc(0).counts().sent, Credit::kWindow);
  }

  int64_t runs = 0, ended = 0;
  std::vector<ErrorCode> failures;
  std::unique_ptr<Cluster> cluster;  // ends first: its end ends calls
};

const Fault kLate{.function = "late", .delay = milliseconds(10'000)};

TEST_P(Backpressure, ACallerWaitsWhileTheCalleeIsBehindAndNothingIsRefused) {  // C4
  Start();
  constexpr int64_t kCalls = 3 * Credit::kWindow;
  for (int64_t i = 0; i < kCalls; ++i) {
    Send("count");
    ASSERT_LE(cluster->rpc(0).counts().sent - static_cast<uint64_t>(runs), Credit::kWindow);
  }
  cluster->scheduler().RunReady();
  EXPECT_EQ(runs, kCalls);
  EXPECT_EQ(ended, kCalls);
  EXPECT_TRUE(failures.empty());
}

TEST_P(Backpressure, CallsOfATaskWaitByThemselves) {  // C4
  Start();
  constexpr int64_t kCalls = 3 * Credit::kWindow;
  cluster->scheduler().Post([this] {
    for (int64_t i = 0; i < kCalls; ++i) Send("count");
    EXPECT_EQ(cluster->rpc(0).counts().sent, Credit::kWindow);
    EXPECT_EQ(cluster->rpc(0).counts().pending, static_cast<size_t>(kCalls)) << "a shutdown waits for them (M2)";
  });
  cluster->scheduler().RunReady();
  EXPECT_EQ(runs, kCalls);
  EXPECT_TRUE(failures.empty());
}

TEST_P(Backpressure, RepliesAndControlNeedNoCredit) {  // C4
  Start({kLate});
  const RRef<int64_t> kept(cluster->Remote(0, 1, "count", EncodeValue(std::tuple<int64_t>(7))));
  cluster->scheduler().RunReady();
  SendInTask([this] {
    for (uint64_t i = 0; i < Credit::kWindow; ++i) Send("late");
  });
  EXPECT_EQ(kept.to_here(), 7);
  EXPECT_EQ(cluster->Call<int64_t>(1, 0, "same", int64_t{5}), 5) << "the other direction";
}

TEST_P(Backpressure, AWaitForCreditEndsByTimeoutAndLeavesNothing) {  // C1, O5
  Start({kLate});
  FillWindow();
  const TimePoint begin = cluster->scheduler().Now();
  const RRef<int64_t> ref((*cluster)[0].references->Remote(
      cluster->rpc(1).self(), "count", EncodeValue(std::tuple<int64_t>(7)), {.timeout = milliseconds(100)}));
  EXPECT_EQ(cluster->scheduler().Now() - begin, milliseconds(100)) << "a program's thread waits";
  EXPECT_THROW(ref.to_here(), Error);
  EXPECT_EQ((*cluster)[0].references->counts().entries, 0u);
  EXPECT_EQ(cluster->rpc(0).counts().sent, Credit::kWindow);
  cluster->scheduler().Advance(milliseconds(20'000));
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(ended, static_cast<int64_t>(Credit::kWindow));
  Send("count");
  cluster->scheduler().RunReady();
  EXPECT_EQ(runs, 1) << "its place went to the next";
}

TEST_P(Backpressure, AWaitForCreditEndsByCancelAndByTheEndOfTheSession) {  // C1
  Start({kLate});
  FillWindow();
  CallHandle first;
  SendInTask([&] {
    first = Send("count");
    Send("count");
  });
  EXPECT_TRUE(first.Cancel());
  cluster->scheduler().RunReady();
  EXPECT_EQ(failures, (std::vector<ErrorCode>{ErrorCode::kCancelled}));
  cluster->network().Kill((*cluster)[1].address);
  cluster->scheduler().RunReady();
  EXPECT_EQ(ended, static_cast<int64_t>(Credit::kWindow) + 2);
  EXPECT_EQ(cluster->rpc(0).counts().pending, 0u);
  EXPECT_EQ(runs, 0);
}

TEST_P(Backpressure, AReferenceMadeInATaskHasItsIdsWhenItIsUsed) {  // O5
  Start({kLate});
  FillWindow();
  int64_t value = 0;
  SendInTask([&] {
    const RRef<int64_t> ref(cluster->Remote(0, 1, "count", EncodeValue(std::tuple<int64_t>(7))));
    value = ref.to_here();
  });
  cluster->scheduler().Advance(milliseconds(20'000));
  EXPECT_EQ(value, 7);
}

TEST_P(Backpressure, ACallThatEndsWhileItWaitsLetsGoOfItsArguments) {
  Start({kLate});
  FillWindow();
  const at::Tensor tensor = at::ones({4});
  CallHandle call;
  SendInTask([&] {
    call = cluster->rpc(0).Send({.to = cluster->id(1), .function = "count", .args = EncodeValue(std::tuple(tensor))},
                                [](const Outcome&) {});
  });
  EXPECT_GT(tensor.use_count(), 1u);
  EXPECT_TRUE(call.Cancel());
  cluster->scheduler().RunReady();
  EXPECT_EQ(tensor.use_count(), 1u);
}

TEST_P(Backpressure, ADeadlineCountsTheWaitForCredit) {  // C2
  Start({kLate, {.function = "count", .delay = milliseconds(3'000)}});
  FillWindow();
  // Sent after 10 s, begun after 13 s.
  SendInTask([this] { Send("count", milliseconds(12'000)); });
  cluster->scheduler().Advance(milliseconds(30'000));
  EXPECT_EQ(failures, (std::vector<ErrorCode>{ErrorCode::kTimedOut}));
  EXPECT_EQ(runs, 0) << "the callee was told what was left";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Backpressure, testing::Range(0, 10));

}  // namespace
}  // namespace gradwire::sim
