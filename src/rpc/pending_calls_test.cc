#include "rpc/pending_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace gradwire::rpc {
namespace {

std::shared_ptr<PendingCall> MakeCall(PendingCalls& table, WorkerId to, bool internal = false) {
  auto call = std::make_shared<PendingCall>();
  call->id = table.NextId();
  call->to = {.id = to, .name = "peer"};
  call->internal = internal;
  table.Add(call);
  return call;
}

TEST(PendingCalls, ACallLeavesTheTableExactlyOnce) {  // C1
  PendingCalls table;
  const auto call = MakeCall(table, {1, 1});
  EXPECT_EQ(table.Take(call->id), call);
  EXPECT_EQ(table.Take(call->id), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(PendingCalls, TheEndOfAPeerTakesItsCallsAlone) {
  PendingCalls table;
  const auto lost = MakeCall(table, {1, 1});
  const auto other_life = MakeCall(table, {1, 2});
  const auto other = MakeCall(table, {2, 1});
  const auto taken = table.TakeAllTo({1, 1});
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0], lost);
  EXPECT_EQ(table.Take(other->id), other);
  EXPECT_EQ(table.Take(other_life->id), other_life);
}

TEST(PendingCalls, OnlyTheCalleeAnswers) {
  PendingCalls table;
  const auto call = MakeCall(table, {1, 1});
  call->state[0] = std::make_shared<int>(1);
  EXPECT_EQ(table.Take(call->id, WorkerId{2, 1}), nullptr);
  EXPECT_FALSE(table.StateOf(call->id, {2, 1})[0]);
  EXPECT_TRUE(table.StateOf(call->id, {1, 1})[0]);
  EXPECT_EQ(table.Take(call->id, WorkerId{1, 1}), call);
}

TEST(PendingCalls, ACancelThatComesWhileACallIsSentIsNotLost) {
  PendingCalls table;
  const auto call = MakeCall(table, {1, 1});
  EXPECT_EQ(table.BeginSend(call->id), call);
  EXPECT_EQ(table.TakeToCancel(call->id), nullptr);
  table.Add(call);
  EXPECT_TRUE(table.EndSend(call->id));
  EXPECT_EQ(table.TakeToCancel(call->id), call);
  EXPECT_EQ(table.BeginSend(call->id), nullptr) << "it has ended";
  const auto other = MakeCall(table, {1, 1});
  EXPECT_EQ(table.BeginSend(other->id), other);
  EXPECT_FALSE(table.EndSend(other->id));
}

TEST(PendingCalls, InternalCallsAreNotCountedAsWork) {
  PendingCalls table;
  const auto internal = MakeCall(table, {1, 1}, true);
  const auto work = MakeCall(table, {1, 1});
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.external(), 1u);
  table.Take(internal->id);
  EXPECT_EQ(table.external(), 1u);
  table.Take(work->id);
  EXPECT_EQ(table.external(), 0u);
}

TEST(PendingCalls, ATimerForACallThatHasEndedIsNotKept) {
  PendingCalls table;
  const auto call = MakeCall(table, {1, 1});
  EXPECT_TRUE(table.SetTimer(call->id, 7));
  EXPECT_EQ(table.Take(call->id)->timer, 7u);
  EXPECT_FALSE(table.SetTimer(call->id, 8));
}

TEST(PendingCalls, AReplyThatRacesATimeoutIsTakenByOneOfThem) {  // C1
  PendingCalls table;
  for (int round = 0; round < 2000; ++round) {
    const auto call = MakeCall(table, {1, 1});
    std::atomic<int> taken{0};
    std::thread timeout([&] { taken += table.Take(call->id) != nullptr; });
    taken += table.Take(call->id) != nullptr;
    timeout.join();
    ASSERT_EQ(taken, 1);
  }
}

}  // namespace
}  // namespace gradwire::rpc
