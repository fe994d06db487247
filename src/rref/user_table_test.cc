// UserTable, event by event. Interleavings are explored in tests/sim/rref_explore_test.cc.
#include "rref/user_table.h"

#include <gtest/gtest.h>

#include "rref/test_ids.h"

namespace gradwire::rref {
namespace {

constexpr ForkId kFork{kU, 1};

std::shared_ptr<const Failure> Why(ErrorCode code) { return std::make_shared<const Failure>(Failure{.code = code}); }

const AnswerConfirm& Answer(const UserTable::Actions& actions, size_t i = 0) {
  return std::get<AnswerConfirm>(actions.at(i));
}

TEST(UserTable, ACreationIsConfirmedByItsReply) {
  UserTable table;
  table.Created(kRRef, kFork, kO);
  EXPECT_EQ(table.counts(), (UserTable::Counts{.forks = 1, .creating = 1}));
  EXPECT_TRUE(table.Confirm(kFork, 9).empty());  // nothing to ask: the reply will tell
  const auto replied = table.CreationReplied(kFork);
  ASSERT_EQ(replied.size(), 1u);
  EXPECT_EQ(Answer(replied).waiter, 9u);
  EXPECT_EQ(Answer(replied).failure, nullptr);
  EXPECT_EQ(table.Find(kFork)->state, UserTable::State::kConfirmed);
  EXPECT_EQ(table.counts(), (UserTable::Counts{.forks = 1}));
}

TEST(UserTable, AFailedCreationIsConfirmedAndItsErrorStays) {
  UserTable table;
  table.Created(kRRef, kFork, kO);
  EXPECT_TRUE(table.CreationReplied(kFork, Why(ErrorCode::kRemote)).empty());
  EXPECT_EQ(table.Find(kFork)->creation_failure->code, ErrorCode::kRemote);
  EXPECT_EQ(Answer(table.Confirm(kFork, 1)).failure, nullptr);
}

TEST(UserTable, AnUnansweredCreationFailsItsWaitersAndIsAskedForLater) {
  UserTable table;
  table.Created(kRRef, kFork, kO);
  EXPECT_TRUE(table.Confirm(kFork, 1).empty());
  const auto ended = table.CreationUnanswered(kFork, Why(ErrorCode::kTimedOut));
  EXPECT_EQ(Answer(ended).failure->code, ErrorCode::kTimedOut);
  EXPECT_EQ(table.Find(kFork)->creation_failure->code, ErrorCode::kTimedOut);
  EXPECT_EQ(table.counts().creating, 0u);
  EXPECT_TRUE(std::holds_alternative<SendConfirm>(table.Confirm(kFork, 2).at(0)));
  const auto dropped = table.Dropped(kFork);  // the owner may have the fork
  EXPECT_TRUE(std::holds_alternative<SendDropFork>(dropped.at(0)));
}

TEST(UserTable, AHandleFromTheOwnerIsConfirmedAtOnce) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kO), Arrival::kTaken);
  EXPECT_EQ(Answer(table.Confirm(kFork, 1)).failure, nullptr);
}

TEST(UserTable, AHandleFromAUserIsConfirmedByOneQuestion) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kV), Arrival::kTaken);
  const auto first = table.Confirm(kFork, 1);
  ASSERT_EQ(first.size(), 1u);
  const auto& ask = std::get<SendConfirm>(first[0]);
  EXPECT_EQ(ask.owner, kO);
  EXPECT_EQ(ask.rref, kRRef);
  EXPECT_EQ(ask.fork, kFork);
  EXPECT_TRUE(table.Confirm(kFork, 2).empty());
  EXPECT_EQ(table.counts().waiting, 2u);
  const auto replied = table.ConfirmReplied(kFork);
  ASSERT_EQ(replied.size(), 2u);
  EXPECT_EQ(Answer(replied, 0).waiter, 1u);
  EXPECT_EQ(Answer(replied, 1).waiter, 2u);
  EXPECT_EQ(Answer(table.Confirm(kFork, 3)).failure, nullptr);
}

TEST(UserTable, AFailedQuestionIsAskedAgain) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kV), Arrival::kTaken);
  EXPECT_EQ(table.Confirm(kFork, 1).size(), 1u);
  EXPECT_EQ(Answer(table.ConfirmReplied(kFork, Why(ErrorCode::kTimedOut))).failure->code, ErrorCode::kTimedOut);
  EXPECT_TRUE(std::holds_alternative<SendConfirm>(table.Confirm(kFork, 2).at(0)));
}

TEST(UserTable, AForkArrivesOnce) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kV), Arrival::kTaken);
  EXPECT_EQ(table.Received({kV, 0}, kFork, kO, kO), Arrival::kRefused);
  EXPECT_EQ(table.Find(kFork)->rref, kRRef);
  EXPECT_EQ(table.Find(kFork)->state, UserTable::State::kUnconfirmed);
}

TEST(UserTable, SharingTellsTheOwnerAndChangesNothingHere) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kO), Arrival::kTaken);
  const std::string before = table.Encoding();
  const ForkId shared{kU, 5};
  const auto add = table.Shared(kFork, shared, kV);
  ASSERT_TRUE(add.has_value());
  EXPECT_EQ(add->owner, kO);
  EXPECT_EQ(add->rref, kRRef);
  EXPECT_EQ(add->fork, shared);
  EXPECT_EQ(add->holder, kV);
  EXPECT_EQ(table.Encoding(), before);
}

TEST(UserTable, ADroppedForkIsDroppedOnceAndCannotBeUsed) {
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, kFork, kO, kV), Arrival::kTaken);
  EXPECT_EQ(table.Confirm(kFork, 1).size(), 1u);
  const auto dropped = table.Dropped(kFork);
  ASSERT_EQ(dropped.size(), 2u);
  EXPECT_EQ(std::get<SendDropFork>(dropped[0]).fork, kFork);
  EXPECT_EQ(Answer(dropped, 1).failure->code, ErrorCode::kInvalid);
  EXPECT_TRUE(table.Dropped(kFork).empty());
  EXPECT_FALSE(table.Shared(kFork, {kU, 5}, kV).has_value());
  EXPECT_EQ(Answer(table.Confirm(kFork, 2)).failure->code, ErrorCode::kInvalid);
  EXPECT_TRUE(table.ConfirmReplied(kFork).empty());
  EXPECT_TRUE(table.CreationReplied(kFork).empty());
  EXPECT_EQ(table.Find(kFork), nullptr);
  EXPECT_EQ(table.counts(), UserTable::Counts{});
}

TEST(UserTable, AQuestionAboutALostWorkerIsAnsweredOnceItIsLostHereToo) {  // rule 8
  UserTable table;
  EXPECT_EQ(table.Received(kRRef, {kV, 1}, kO, kV), Arrival::kTaken);
  EXPECT_EQ(table.Received({kV, 7}, {kV, 8}, kU, kV), Arrival::kTaken) << "of another owner";
  EXPECT_EQ(table.Received(kRRef, {kO, 2}, kO, kO), Arrival::kTaken) << "of another maker";
  const auto asked = table.Reconcile(kO, kV, 5);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(std::get<Probe>(asked[0]).peer, kV);
  EXPECT_EQ(table.counts().asked, 1u);
  const auto lost = table.PeerLost(kV);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(std::get<AnswerReconcile>(lost[0]).waiter, 5u);
  EXPECT_EQ(std::get<AnswerReconcile>(lost[0]).gifts, (std::vector<Gift>{{kRRef, {kV, 1}}}));
  EXPECT_EQ(table.counts().asked, 0u);
  EXPECT_EQ(std::get<AnswerReconcile>(table.Reconcile(kO, kV, 6).at(0)).gifts.size(), 1u) << "later ones at once";
}

TEST(UserTable, WhatALostWorkerSendsAfterTheAnswerIsNotTaken) {  // R1: no owner would count it
  UserTable table;
  EXPECT_TRUE(table.PeerLost(kV).empty());
  EXPECT_EQ(table.Received(kRRef, {kV, 1}, kO, kV), Arrival::kFromLost);
  EXPECT_EQ(table.Find({kV, 1}), nullptr);
}

TEST(UserTable, AQuestionEndsWithTheOneWhoAsked) {
  UserTable table;
  EXPECT_EQ(table.Reconcile(kO, kV, 5).size(), 1u);
  EXPECT_EQ(table.PeerLost(kO).size(), 1u);
  EXPECT_EQ(table.counts().asked, 0u);
  EXPECT_EQ(table.Reconcile(kO, kV, 6).size(), 1u) << "seen late: there is nobody to wait for";
  EXPECT_EQ(table.counts().asked, 0u);
  EXPECT_TRUE(table.PeerLost(kV).empty());
}

}  // namespace
}  // namespace gradwire::rref
