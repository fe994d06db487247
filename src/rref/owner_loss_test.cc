// OwnerTable when workers are lost (rule 8), event by event. Interleavings are explored in tests/sim/.
#include <gtest/gtest.h>

#include "rref/owner_table.h"
#include "rref/test_ids.h"

namespace gradwire::rref {
namespace {

constexpr WorkerId kW{3, 7};
constexpr ForkId kMade{kU, 1}, kGift{kU, 2};

std::shared_ptr<const Failure> Killed() {
  return std::make_shared<const Failure>(
      Failure{.code = ErrorCode::kDisconnected, .text = "it was killed", .worker = "U"});
}

// The value of kRRef, created by U.
class OwnerLossTest : public testing::Test {
 protected:
  void CreateWithValue() {
    ASSERT_TRUE(table_.Create(kRRef, kMade, kU).has_value());
    ASSERT_TRUE(table_.SetValue(kRRef, Result::Of(std::make_shared<Value>())).empty());
  }

  // Loses a worker about which V and W, unless lost, are to be asked.
  OwnerTable::Actions LoseAndAsk(WorkerId peer) {
    const auto lost = table_.PeerLost(peer, Killed());
    EXPECT_EQ(lost.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<NeedMembers>(lost.at(0)));
    return table_.BeginRounds({kO, kU, kV, kW});
  }

  static void ExpectFrees(const OwnerTable::Actions& actions) {
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<Free>(actions[0]));
  }

  void ExpectEmpty() const { EXPECT_EQ(table_.counts(), OwnerTable::Counts{}); }

  OwnerTable table_{kO};
};

TEST_F(OwnerLossTest, R3_WhatTheLostHeldIsKeptUntilAllHaveAnswered) {
  CreateWithValue();
  const auto asks = LoseAndAsk(kU);
  ASSERT_EQ(asks.size(), 2u);
  EXPECT_EQ(std::get<AskReconcile>(asks[0]).whom, kV);
  EXPECT_EQ(std::get<AskReconcile>(asks[1]).whom, kW);
  EXPECT_EQ(std::get<AskReconcile>(asks[1]).about, kU);
  EXPECT_EQ(table_.fork_count(kRRef), 0u);
  EXPECT_TRUE(table_.in_doubt(kRRef));
  EXPECT_TRUE(table_.Reconciled(kV, kU, {}).empty());
  EXPECT_TRUE(table_.Reconciled(kV, kU, {}).empty()) << "an answer counts once";
  ExpectFrees(table_.Reconciled(kW, kU, {}));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R3_AGiftWhoseAddWasLostIsCountedByTheAnswer) {
  CreateWithValue();
  LoseAndAsk(kU);
  EXPECT_TRUE(table_.Reconciled(kV, kU, {{kRRef, kGift}}).empty());
  EXPECT_TRUE(table_.Reconciled(kW, kU, {}).empty());
  EXPECT_TRUE(table_.has_fork(kRRef, kGift));
  EXPECT_FALSE(table_.in_doubt(kRRef));
  ExpectFrees(table_.DropFork(kRRef, kGift, kV));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R3_AGiftThatNeverArrivedIsForgottenByTheAnswer) {
  CreateWithValue();
  EXPECT_TRUE(table_.AddFork(kRRef, kGift, kV).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kMade, kU).empty());
  EXPECT_EQ(LoseAndAsk(kU).size(), 2u) << "U holds nothing, but V may never have got its gift";
  EXPECT_TRUE(table_.Reconciled(kW, kU, {{kRRef, {kW, 9}}}).empty()) << "W did not get it, and names no fork of U's";
  ExpectFrees(table_.Reconciled(kV, kU, {}));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R2_ADropMayOvertakeTheAnswerThatNamesItsFork) {
  CreateWithValue();
  LoseAndAsk(kU);
  EXPECT_TRUE(table_.DropFork(kRRef, kGift, kV).empty());
  EXPECT_TRUE(table_.Reconciled(kV, kU, {{kRRef, kGift}}).empty());
  ExpectFrees(table_.Reconciled(kW, kU, {}));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R3_AGiftToOneThatIsLostIsNoForkButADoubt) {
  CreateWithValue();
  EXPECT_TRUE(table_.PeerLost(kV, Killed()).empty()) << "nothing hangs on it";
  const auto late = table_.AddFork(kRRef, kGift, kV);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<NeedMembers>(late[0]));
  EXPECT_EQ(table_.BeginRounds({kO, kU, kV, kW}).size(), 2u);
  EXPECT_TRUE(table_.DropFork(kRRef, kMade, kU).empty());
  EXPECT_TRUE(table_.Reconciled(kU, kV, {}).empty());
  ExpectFrees(table_.Reconciled(kW, kV, {}));
  EXPECT_EQ(table_.GiveFork(kRRef, {kO, 1}, kV), Standing::kNoLonger);
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R3_OneThatIsLostBeforeItAnswersIsAskedAboutToo) {
  CreateWithValue();
  LoseAndAsk(kU);
  const auto asks = LoseAndAsk(kV);  // it may have passed a gift of U's on to W
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_EQ(std::get<AskReconcile>(asks[0]).whom, kW);
  EXPECT_EQ(std::get<AskReconcile>(asks[0]).about, kV);
  EXPECT_TRUE(table_.Reconciled(kW, kU, {}).empty());
  EXPECT_TRUE(table_.Reconciled(kW, kV, {{kRRef, {kV, 4}}}).empty());
  ExpectFrees(table_.DropFork(kRRef, {kV, 4}, kW));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R2_WithNobodyToAskAValueGoesAtOnce) {
  CreateWithValue();
  EXPECT_EQ(table_.PeerLost(kU, Killed()).size(), 1u);
  ExpectFrees(table_.BeginRounds({kO, kU}));
  ExpectEmpty();
}

TEST_F(OwnerLossTest, OthersValuesAreFreedAsEver) {
  CreateWithValue();
  ASSERT_TRUE(table_.Create({kV, 0}, {kV, 1}, kV).has_value());
  LoseAndAsk(kU);
  EXPECT_TRUE(table_.DropFork({kV, 0}, {kV, 1}, kV).empty());
  EXPECT_EQ(table_.counts().entries, 1u) << "U never had that one";
}

TEST_F(OwnerLossTest, WhereTheLostHadNothingNobodyIsAsked) {
  EXPECT_TRUE(table_.PeerLost(kU, Killed()).empty());
  ExpectEmpty();
}

TEST_F(OwnerLossTest, R3_AValueWhoseCreationWasLostIsAClearError) {
  EXPECT_TRUE(table_.Fetch(kRRef, 1).empty()) << "its creating call is on its way";
  EXPECT_TRUE(table_.AddFork(kRRef, {kV, 5}, kW).empty()) << "shared with V, and by V with W";
  EXPECT_TRUE(table_.Fetch({kV, 3}, 2).empty());
  const auto lost = table_.PeerLost(kU, Killed());
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(std::get<AnswerFetch>(lost[0]).waiter, 1u);
  EXPECT_NE(std::get<AnswerFetch>(lost[0]).result.failure->text.find("it was killed"), std::string::npos);
  EXPECT_EQ(table_.fork_count(kRRef), 1u) << "W's";
  EXPECT_EQ(std::get<AnswerFetch>(table_.Fetch(kRRef, 3).at(0)).waiter, 3u) << "later ones fail at once";
  EXPECT_EQ(std::get<AnswerFetch>(table_.Fetch({kU, 9}, 4).at(0)).waiter, 4u);
  EXPECT_TRUE(table_.DropFork(kRRef, {kV, 5}, kW).empty());
  EXPECT_EQ(table_.counts().entries, 1u) << "V's own is still to come";
}

TEST_F(OwnerLossTest, C1_AConfirmOfALostGiftIsAnsweredByItsHoldersOwnAnswer) {
  CreateWithValue();
  EXPECT_TRUE(table_.Confirm(kRRef, kGift, 1).empty());
  LoseAndAsk(kU);
  const auto answered = table_.Reconciled(kV, kU, {{kRRef, kGift}});
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(std::get<AnswerConfirm>(answered[0]).failure, nullptr);
}

TEST_F(OwnerLossTest, C1_AConfirmOfAGiftThatNobodyNamesFails) {
  CreateWithValue();
  const auto held = table_.Hold(kRRef);
  EXPECT_EQ(held, Standing::kHere);
  LoseAndAsk(kU);
  EXPECT_TRUE(table_.Confirm(kRRef, kGift, 1).empty());
  EXPECT_TRUE(table_.Reconciled(kV, kU, {}).empty());
  const auto ended = table_.Reconciled(kW, kU, {});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(std::get<AnswerConfirm>(ended[0]).failure);
  EXPECT_TRUE(std::get<AnswerConfirm>(table_.Confirm(kRRef, kGift, 2).at(0)).failure) << "later ones at once";
  EXPECT_EQ(table_.standing(kRRef), Standing::kHere) << "the value stays";
}

TEST_F(OwnerLossTest, C1_CloseEndsDoubtsToo) {
  CreateWithValue();
  LoseAndAsk(kU);
  ExpectFrees(table_.Close(Killed()));
  EXPECT_TRUE(table_.Reconciled(kV, kU, {{kRRef, kGift}}).empty());
  EXPECT_TRUE(table_.PeerLost(kV, Killed()).empty());
  EXPECT_TRUE(table_.BeginRounds({kO, kV, kW}).empty());
  ExpectEmpty();
}

}  // namespace
}  // namespace gradwire::rref
