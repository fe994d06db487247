// Cancelling calls: what callers, callees and handlers see of it, in every order that a seed makes.
#include <gtest/gtest.h>

#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

class Cancel : public testing::TestWithParam<int> {
 protected:
  Cancel() : cluster(static_cast<uint64_t>(GetParam()), 2) {
    cluster[1].functions->AddHandler("keep", [this](const std::shared_ptr<IncomingCall>& call) { kept = call; });
  }

  CallHandle Send(const std::string& function) {
    rpc::Call call;
    call.to = cluster.id(1);
    call.function = function;
    call.args = EncodeValue(std::tuple<int64_t>(1));
    call.options.timeout = std::chrono::milliseconds(0);
    return cluster.rpc(0).Send(std::move(call), [this](Outcome o) { outcome.emplace(std::move(o)); });
  }
  void ExpectCancelledAndNothingLeft() {
    cluster.scheduler().RunReady();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->failure().code, ErrorCode::kCancelled);
    uint64_t sent = 0, handled = 0;
    for (size_t rank = 0; rank < 2; ++rank) {
      const rpc::Rpc::Counts counts = cluster.rpc(rank).counts();
      EXPECT_EQ(counts.pending, 0u);
      EXPECT_EQ(counts.serving, 0u);
      sent += counts.sent, handled += counts.handled;
    }
    EXPECT_EQ(sent, handled) << "a shutdown must see rest (M2)";
  }

  Cluster cluster;
  std::shared_ptr<IncomingCall> kept;
  std::optional<Outcome> outcome;
};

TEST_P(Cancel, ACallThatIsQueuedIsNotStarted) {
  bool started = false;
  cluster[1].functions->Add("start", [&](int64_t) { started = true; });
  const CallHandle call = Send("start");
  EXPECT_TRUE(call.Cancel());
  EXPECT_TRUE(outcome) << "at once";
  EXPECT_FALSE(call.Cancel()) << "it has ended";
  ExpectCancelledAndNothingLeft();
  // The seed may let the handler start before the cancel has arrived.
  EXPECT_EQ(cluster.rpc(1).counts().dropped, started ? 0u : 1u);
}

TEST_P(Cancel, AHandlerThatRunsSeesItAndItsResultIsDiscarded) {
  const CallHandle call = Send("keep");
  cluster.scheduler().RunReady();
  ASSERT_TRUE(kept);
  EXPECT_FALSE(kept->cancelled());
  EXPECT_TRUE(call.Cancel());
  cluster.scheduler().RunReady();
  EXPECT_TRUE(kept->cancelled());
  EXPECT_EQ(outcome->failure().code, ErrorCode::kCancelled) << "the caller does not wait for the handler";
  kept->Reply(EncodeValue(int64_t{5}));
  kept.reset();
  ExpectCancelledAndNothingLeft();
}

TEST_P(Cancel, AHandlerThatRunsIsTold) {
  const CallHandle call = Send("keep");
  cluster.scheduler().RunReady();
  int told = 0;
  kept->OnCancelled([&] { ++told; });
  cluster.scheduler().RunReady();
  EXPECT_EQ(told, 0);
  call.Cancel();
  cluster.scheduler().RunReady();
  EXPECT_EQ(told, 1);
  kept->OnCancelled([&] { ++told; });
  EXPECT_EQ(told, 2) << "at once: it has happened";
  kept->Reply({});
  kept.reset();
  ExpectCancelledAndNothingLeft();
}

TEST_P(Cancel, AHandlerWhoseCallHasEndedIsToldNothing) {
  const CallHandle call = Send("keep");
  cluster.scheduler().RunReady();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  kept->OnCancelled([held = std::move(held)] { ++*held; });
  kept->Reply(EncodeValue(int64_t{5}));
  EXPECT_TRUE(watched.expired());
  cluster.scheduler().RunReady();
  EXPECT_FALSE(call.Cancel());
  cluster.scheduler().RunReady();
  kept->OnCancelled([] { FAIL(); });
  EXPECT_TRUE(outcome->ok());
}

TEST_P(Cancel, TheLossOfTheCallerIsToldToWhatRunsForItAlone) {
  bool told = false;
  Send("keep");
  cluster.scheduler().RunReady();
  kept->OnCancelled([&] { told = true; });
  std::shared_ptr<IncomingCall> made;
  cluster[1].functions->AddHandler("make", [&](const std::shared_ptr<IncomingCall>& call) {
    made = call;
    call->OnCancelled([] { FAIL() << "others may hold the value"; });
  });
  const auto value = cluster.Remote(0, 1, "make", EncodeValue(std::tuple<>()));
  cluster.scheduler().RunReady();
  ASSERT_TRUE(made);
  cluster.rpc(0).Stop("it is lost");
  cluster.scheduler().RunReady();
  EXPECT_TRUE(told);
  EXPECT_TRUE(kept->cancelled());
  EXPECT_FALSE(made->cancelled());
  kept->Reply({});
  made->Reply({});
}

TEST_P(Cancel, AFunctionThatDoesNotSeeItsCallMayAsk) {
  std::vector<bool> seen;
  CallHandle call;
  cluster[1].functions->Add("ask", [&](int64_t) {
    seen.push_back(this_call_cancelled());
    call.Cancel();
    cluster.scheduler().RunReady();
    seen.push_back(this_call_cancelled());
  });
  EXPECT_FALSE(this_call_cancelled());
  call = Send("ask");
  cluster.scheduler().RunReady();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(this_call_cancelled());
  ExpectCancelledAndNothingLeft();
}

TEST_P(Cancel, ComesTooLateForACallThatHasEnded) {
  cluster[1].functions->Add("same", [](int64_t value) { return value; });
  const CallHandle call = Send("same");
  cluster.scheduler().RunReady();
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(call.Cancel());
  EXPECT_EQ(DecodeValue<int64_t>(outcome->value()), 1);
  EXPECT_FALSE(CallHandle().Cancel()) << "of no call";
}

TEST_P(Cancel, CallsOfOtherIdsGoOn) {
  cluster[1].functions->Add("same", [](int64_t value) { return value; });
  const CallHandle call = Send("keep");
  cluster.scheduler().RunReady();
  call.Cancel();
  EXPECT_EQ(cluster.Call<int64_t>(0, 1, "same", int64_t{7}), 7);
  EXPECT_EQ(cluster.Call<int64_t>(1, 1, "same", int64_t{8}), 8);
  kept->Reply({});
  ExpectCancelledAndNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Cancel, testing::Range(0, 100));

}  // namespace
}  // namespace gradwire::sim
