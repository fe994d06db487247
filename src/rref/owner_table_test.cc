// OwnerTable, event by event. Interleavings are explored in tests/sim/rref_explore_test.cc.
#include "rref/owner_table.h"

#include <gtest/gtest.h>

#include "rref/test_ids.h"

namespace gradwire::rref {
namespace {

constexpr ForkId kForkU{kU, 1}, kForkV{kU, 2};

std::shared_ptr<const Value> MakeValue() { return std::make_shared<Value>(); }

Failure Broke() { return {.code = ErrorCode::kRemote, .text = "the creation broke"}; }

class OwnerTableTest : public testing::Test {
 protected:
  void Create() {
    const auto actions = table_.Create(kRRef, kForkU, kU);
    ASSERT_TRUE(actions.has_value());
    EXPECT_TRUE(actions->empty());
  }

  void CreateWithValue() {
    Create();
    EXPECT_TRUE(table_.SetValue(kRRef, Result::Of(value_)).empty());
  }

  void ExpectEmpty() const { EXPECT_EQ(table_.counts(), OwnerTable::Counts{}); }

  void ExpectFrees(const OwnerTable::Actions& actions) const {
    ASSERT_EQ(actions.size(), 1u);
    ASSERT_TRUE(std::holds_alternative<Free>(actions[0]));
    EXPECT_EQ(std::get<Free>(actions[0]).value, value_);
  }

  static const AnswerFetch& Fetched(const OwnerTable::Actions& actions, size_t i = 0) {
    return std::get<AnswerFetch>(actions.at(i));
  }
  static const AnswerConfirm& Confirmed(const OwnerTable::Actions& actions, size_t i = 0) {
    return std::get<AnswerConfirm>(actions.at(i));
  }

  OwnerTable table_{kO};
  std::shared_ptr<const Value> value_ = MakeValue();
};

TEST_F(OwnerTableTest, R2TheLastForkFreesTheValueAndTheEntry) {
  CreateWithValue();
  EXPECT_TRUE(table_.AddFork(kRRef, kForkV, kV).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  EXPECT_EQ(table_.standing(kRRef), Standing::kHere);
  ExpectFrees(table_.DropFork(kRRef, kForkV, kV));
  EXPECT_EQ(table_.standing(kRRef), Standing::kNoLonger);
  ExpectEmpty();
}

TEST_F(OwnerTableTest, R1AHoldKeepsTheValueWithoutForks) {
  CreateWithValue();
  EXPECT_EQ(table_.Hold(kRRef), Standing::kHere);
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  ExpectFrees(table_.Release(kRRef));
  ExpectEmpty();
}

TEST_F(OwnerTableTest, ADropBeforeItsAddLeavesATombstoneThatTheAddRemoves) {
  CreateWithValue();
  EXPECT_TRUE(table_.DropFork(kRRef, kForkV, kV).empty());
  EXPECT_EQ(table_.counts().tombstones, 1u);
  EXPECT_TRUE(table_.AddFork(kRRef, kForkV, kV).empty());
  EXPECT_EQ(table_.counts().tombstones, 0u);
  EXPECT_FALSE(table_.has_fork(kRRef, kForkV));
  ExpectFrees(table_.DropFork(kRRef, kForkU, kU));
}

TEST_F(OwnerTableTest, R2FreeingClearsTombstones) {
  CreateWithValue();
  EXPECT_TRUE(table_.DropFork(kRRef, kForkV, kV).empty());
  ExpectFrees(table_.DropFork(kRRef, kForkU, kU));
  ExpectEmpty();
}

TEST_F(OwnerTableTest, MessagesAboutWhatIsGoneAreIgnoredAndUsesAreErrors) {
  CreateWithValue();
  ExpectFrees(table_.DropFork(kRRef, kForkU, kU));
  EXPECT_TRUE(table_.AddFork(kRRef, kForkV, kV).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kForkV, kV).empty());
  EXPECT_EQ(table_.Hold(kRRef), Standing::kNoLonger);
  EXPECT_EQ(table_.GiveFork(kRRef, kForkV, kV), Standing::kNoLonger);
  const auto fetched = table_.Fetch(kRRef, 5);
  EXPECT_EQ(Fetched(fetched).waiter, 5u);
  EXPECT_EQ(Fetched(fetched).result.failure->code, ErrorCode::kInvalid);
  EXPECT_NE(Fetched(fetched).result.failure->text.find(ToString(kRRef)), std::string::npos);
  EXPECT_EQ(Confirmed(table_.Confirm(kRRef, kForkV, 6)).failure->code, ErrorCode::kInvalid);
  ExpectEmpty();
}

TEST_F(OwnerTableTest, WhatComesBeforeTheCreationIsRemembered) {
  EXPECT_EQ(table_.standing(kRRef), Standing::kNotYet);
  EXPECT_EQ(table_.Hold(kRRef), Standing::kNotYet);
  EXPECT_TRUE(table_.AddFork(kRRef, kForkV, kV).empty());
  EXPECT_EQ(table_.counts().not_yet, 1u);
  CreateWithValue();
  EXPECT_EQ(table_.counts().forks, 2u);
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kForkV, kV).empty());
  ExpectFrees(table_.Release(kRRef));
}

TEST_F(OwnerTableTest, R2NothingIsKeptOfAHoldThatEndsBeforeTheCreation) {
  EXPECT_EQ(table_.Hold(kRRef), Standing::kNotYet);
  EXPECT_TRUE(table_.Release(kRRef).empty());
  ExpectEmpty();
  EXPECT_EQ(table_.standing(kRRef), Standing::kNotYet);
}

TEST_F(OwnerTableTest, AHandleThatCameBeforeTheCreationCanBeGivenOn) {
  EXPECT_EQ(table_.Hold(kRRef), Standing::kNotYet);
  const ForkId given{kO, 3};
  EXPECT_EQ(table_.GiveFork(kRRef, given, kV), Standing::kNotYet);
  EXPECT_TRUE(table_.Release(kRRef).empty());
  CreateWithValue();
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  ExpectFrees(table_.DropFork(kRRef, given, kV));
}

TEST_F(OwnerTableTest, ACreatorsIdsOnlyGrow) {
  const RRefId later{kU, 10}, earlier{kU, 4};
  EXPECT_TRUE(table_.Create(later, {kU, 11}, kU).has_value());
  EXPECT_EQ(table_.standing(earlier), Standing::kNoLonger);  // it would have come before
  EXPECT_EQ(table_.standing({kU, 12}), Standing::kNotYet);
  EXPECT_EQ(table_.standing({kV, 4}), Standing::kNotYet);  // another creator's
  EXPECT_FALSE(table_.Create(earlier, {kU, 5}, kU).has_value());
  EXPECT_FALSE(table_.Create(later, {kU, 13}, kU).has_value());
  EXPECT_EQ(table_.counts().entries, 1u);
}

TEST_F(OwnerTableTest, AnotherLifeOfTheCreatorCountsFromTheStart) {
  EXPECT_TRUE(table_.Create({kU, 10}, {kU, 11}, kU).has_value());
  const WorkerId again{kU.rank, 8};
  EXPECT_TRUE(table_.Create({again, 0}, {again, 1}, again).has_value());
}

TEST_F(OwnerTableTest, NobodyCreatesInAnothersName) {
  EXPECT_FALSE(table_.Create(kRRef, kForkU, kV).has_value());
  EXPECT_FALSE(table_.Create({kV, 0}, kForkU, kV).has_value());
  EXPECT_FALSE(table_.Create({kO, 0}, {kO, 1}, kO).has_value());
  ExpectEmpty();
}

TEST_F(OwnerTableTest, AFailedCreationMakesEntryAndForkAndItsErrorIsTheValue) {
  Create();
  EXPECT_TRUE(table_.Fetch(kRRef, 1).empty());
  const auto failed = table_.SetValue(kRRef, Result::Of(Broke()));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(Fetched(failed).result.failure->text, Broke().text);
  EXPECT_TRUE(table_.has_fork(kRRef, kForkU));
  EXPECT_EQ(Fetched(table_.Fetch(kRRef, 2)).result.failure->text, Broke().text);
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  ExpectEmpty();
}

TEST_F(OwnerTableTest, FetchesWaitForCreationAndValueInOrder) {
  EXPECT_TRUE(table_.Fetch(kRRef, 1).empty());
  Create();
  EXPECT_TRUE(table_.Fetch(kRRef, 2).empty());
  EXPECT_EQ(table_.counts().pending, 1u);
  EXPECT_EQ(table_.counts().waiting, 2u);
  const auto made = table_.SetValue(kRRef, Result::Of(value_));
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(Fetched(made, 0).waiter, 1u);
  EXPECT_EQ(Fetched(made, 1).waiter, 2u);
  EXPECT_EQ(Fetched(made, 1).result.value, value_);
  EXPECT_EQ(Fetched(table_.Fetch(kRRef, 3)).result.value, value_);
}

TEST_F(OwnerTableTest, AnUnansweredFetchKeepsTheEntry) {
  Create();
  EXPECT_TRUE(table_.Fetch(kRRef, 1).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  EXPECT_EQ(table_.standing(kRRef), Standing::kHere);
  const auto made = table_.SetValue(kRRef, Result::Of(value_));
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(Fetched(made, 0).result.value, value_);
  EXPECT_EQ(std::get<Free>(made[1]).value, value_);
  ExpectEmpty();
}

TEST_F(OwnerTableTest, R2AValueMadeAfterItsLastForkIsGoneComesBack) {
  Create();
  EXPECT_TRUE(table_.DropFork(kRRef, kForkU, kU).empty());
  ExpectEmpty();
  ExpectFrees(table_.SetValue(kRRef, Result::Of(value_)));
  EXPECT_TRUE(table_.SetValue(kRRef, Result::Of(Broke())).empty());
  ExpectEmpty();
}

TEST_F(OwnerTableTest, AConfirmWaitsForItsFork) {
  EXPECT_TRUE(table_.Confirm(kRRef, kForkV, 1).empty());
  Create();
  EXPECT_EQ(Confirmed(table_.Confirm(kRRef, kForkU, 2)).failure, nullptr);  // the creation's own
  const auto added = table_.AddFork(kRRef, kForkV, kV);
  ASSERT_EQ(added.size(), 1u);
  EXPECT_EQ(Confirmed(added).waiter, 1u);
  EXPECT_EQ(Confirmed(added).failure, nullptr);
  EXPECT_EQ(table_.counts().waiting, 0u);
}

TEST_F(OwnerTableTest, AConfirmIsAnsweredThoughItsForkWasDroppedMeanwhile) {
  CreateWithValue();
  EXPECT_TRUE(table_.Confirm(kRRef, kForkV, 1).empty());
  EXPECT_TRUE(table_.DropFork(kRRef, kForkV, kV).empty());
  EXPECT_EQ(Confirmed(table_.AddFork(kRRef, kForkV, kV)).failure, nullptr);
  EXPECT_FALSE(table_.has_fork(kRRef, kForkV));
}

TEST_F(OwnerTableTest, C1AConfirmOfAForkThatNeverComesEndsWithTheValue) {
  CreateWithValue();
  EXPECT_TRUE(table_.Confirm(kRRef, kForkV, 1).empty());
  const auto freed = table_.DropFork(kRRef, kForkU, kU);
  ASSERT_EQ(freed.size(), 2u);
  EXPECT_NE(Confirmed(freed).failure, nullptr);
  EXPECT_EQ(std::get<Free>(freed[1]).value, value_);
}

TEST_F(OwnerTableTest, AValueOfTheOwnerLivesWithItsHandleAndItsForks) {
  const RRefId own{kO, 0};
  const ForkId given{kO, 1};
  table_.CreateLocal(own);
  EXPECT_TRUE(table_.SetValue(own, Result::Of(value_)).empty());
  EXPECT_EQ(table_.GiveFork(own, given, kV), Standing::kHere);
  EXPECT_TRUE(table_.Release(own).empty());
  ExpectFrees(table_.DropFork(own, given, kV));
  EXPECT_EQ(table_.standing(own), Standing::kNoLonger);
}

TEST_F(OwnerTableTest, R5HeldByOthersNamesWhatIsLeft) {
  CreateWithValue();
  EXPECT_TRUE(table_.AddFork(kRRef, kForkV, kV).empty());
  table_.CreateLocal({kO, 0});
  const auto held = table_.HeldByOthers();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].rref, kRRef);
  EXPECT_EQ(held[0].forks, (std::map<ForkId, WorkerId>{{kForkU, kU}, {kForkV, kV}}));
  const OwnerTable::Counts counts = table_.counts();
  EXPECT_EQ(counts.entries, 2u);
  EXPECT_EQ(counts.with_forks, 1u);
  EXPECT_EQ(counts.forks, 2u);
  EXPECT_EQ(counts.holds, 1u);
  EXPECT_EQ(counts.pending, 1u);
}

TEST_F(OwnerTableTest, C1CloseEndsEveryWaitAndReturnsEveryValue) {
  CreateWithValue();
  EXPECT_TRUE(table_.Confirm(kRRef, kForkV, 1).empty());
  EXPECT_TRUE(table_.Fetch({kV, 0}, 2).empty());
  const auto why = std::make_shared<const Failure>(Failure{.code = ErrorCode::kCancelled, .text = "stopped"});
  int fetches = 0, confirms = 0, values = 0;
  for (const auto& action : table_.Close(why)) {
    if (const auto* fetch = std::get_if<AnswerFetch>(&action)) fetches += fetch->result.failure == why;
    if (const auto* confirm = std::get_if<AnswerConfirm>(&action)) confirms += confirm->failure == why;
    if (const auto* free = std::get_if<Free>(&action)) values += free->value == value_;
  }
  EXPECT_EQ(fetches, 1);
  EXPECT_EQ(confirms, 1);
  EXPECT_EQ(values, 1);
  ExpectEmpty();
}

TEST_F(OwnerTableTest, C1NothingEntersATableThatIsClosed) {
  const auto why = std::make_shared<const Failure>(Failure{.code = ErrorCode::kCancelled, .text = "stopped"});
  const RRefId early{kV, 0}, own{kO, 0};
  EXPECT_EQ(table_.Hold(early), Standing::kNotYet);
  EXPECT_TRUE(table_.Close(why).empty());
  EXPECT_TRUE(table_.AddFork(early, kForkV, kV).empty());
  EXPECT_TRUE(table_.Release(early).empty());  // a handle that outlives it
  EXPECT_EQ(table_.Hold(early), Standing::kNoLonger);
  EXPECT_TRUE(table_.Create(kRRef, kForkU, kU).has_value());
  ExpectFrees(table_.SetValue(kRRef, Result::Of(value_)));
  table_.CreateLocal(own);
  EXPECT_TRUE(table_.Release(own).empty());
  EXPECT_EQ(Fetched(table_.Fetch(early, 1)).result.failure, why);
  EXPECT_EQ(Confirmed(table_.Confirm(early, kForkV, 2)).failure, why);
  ExpectEmpty();
}

TEST_F(OwnerTableTest, AHandleDroppedByForceMayBeGivenWhileOthersHoldTheValue) {
  CreateWithValue();
  EXPECT_EQ(table_.GiveFork(kRRef, {kO, 3}, kV), Standing::kHere);  // no hold any more
  EXPECT_EQ(table_.counts().forks, 2u);
}

TEST_F(OwnerTableTest, TheEncodingTellsStatesApartAndIsCanonical) {
  OwnerTable other(kO);
  EXPECT_EQ(table_.Encoding(), other.Encoding());
  ASSERT_TRUE(table_.Create(kRRef, kForkU, kU).has_value());
  ASSERT_TRUE(table_.Create({kU, 300}, {kU, 301}, kU).has_value());
  EXPECT_NE(table_.Encoding(), other.Encoding());
  EXPECT_TRUE(other.AddFork({kU, 300}, {kV, 0}, kV).empty());
  ASSERT_TRUE(other.Create(kRRef, kForkU, kU).has_value());
  ASSERT_TRUE(other.Create({kU, 300}, {kU, 301}, kU).has_value());
  EXPECT_NE(table_.Encoding(), other.Encoding());
  EXPECT_TRUE(other.DropFork({kU, 300}, {kV, 0}, kV).empty());
  EXPECT_EQ(table_.Encoding(), other.Encoding());  // another way to the same state
  OwnerTable copy = other;
  EXPECT_TRUE(copy.DropFork(kRRef, kForkU, kU).empty());
  EXPECT_NE(copy.Encoding(), other.Encoding());
}

// Without this an owner waits for ever for what a worker that has died was to send, and its group's shutdown for it.

}  // namespace
}  // namespace gradwire::rref
