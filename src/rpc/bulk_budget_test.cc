#include "rpc/bulk_budget.h"

#include <gtest/gtest.h>

#include <string>

#include "base/test_failure.h"

namespace gradwire::rpc {
namespace {

const WorkerId kOne{1, 1}, kTwo{2, 2};

class BulkBudgetTest : public testing::Test {
 protected:
  std::shared_ptr<BulkBudget::Lease> Ask(WorkerId peer, size_t bytes, const std::string& name) {
    auto lease = std::make_shared<BulkBudget::Lease>();
    budget->Ask(lease, peer, bytes, [this, name] { granted += name; });
    return lease;
  }

  std::string granted;
  std::shared_ptr<BulkBudget> budget = std::make_shared<BulkBudget>(
      BulkBudget::Limits{.of_worker = 100, .of_peer = 50}, [](Task task) { task(); });
};

TEST_F(BulkBudgetTest, WhatIsOverThePeersLimitWaitsAndDelaysNobodyElse) {
  auto a = Ask(kOne, 40, "a");
  const auto b = Ask(kOne, 20, "b");
  const auto c = Ask(kTwo, 50, "c");
  EXPECT_EQ(granted, "ac");
  EXPECT_EQ(budget->in_flight(), 90u);
  a.reset();
  EXPECT_EQ(granted, "acb");
  EXPECT_EQ(budget->in_flight(), 70u);
}

TEST_F(BulkBudgetTest, OneMessageMayExceedThePeersLimitAlone) {
  auto a = Ask(kOne, 90, "a");
  const auto b = Ask(kOne, 1, "b");
  EXPECT_EQ(granted, "a");
  a.reset();
  EXPECT_EQ(granted, "ab");
}

TEST_F(BulkBudgetTest, MoreThanTheWorkerMayHaveIsAnError) {
  auto lease = std::make_shared<BulkBudget::Lease>();
  EXPECT_THROW(budget->Ask(lease, kOne, 101, [] {}), Error);
  lease.reset();
  EXPECT_EQ(budget->in_flight(), 0u);
}

TEST_F(BulkBudgetTest, ALargeOneIsNotOvertakenForEver) {
  auto a = Ask(kOne, 30, "a");
  const auto large = Ask(kTwo, 80, "L");
  const auto b = Ask(kOne, 10, "b");
  EXPECT_EQ(granted, "a");
  a.reset();
  EXPECT_EQ(granted, "aLb");
}

TEST_F(BulkBudgetTest, WhatCanBeHadAtOnceIsTakenAtOnce) {
  auto a = std::make_shared<BulkBudget::Lease>();
  EXPECT_TRUE(budget->Take(a, kOne, 40));
  auto b = std::make_shared<BulkBudget::Lease>();
  EXPECT_FALSE(budget->Take(b, kOne, 40));
  const auto c = Ask(kOne, 20, "c");
  auto d = std::make_shared<BulkBudget::Lease>();
  EXPECT_FALSE(budget->Take(d, kTwo, 1)) << "somebody waits";
  b.reset();
  EXPECT_EQ(budget->in_flight(), 40u);
  a.reset();
  EXPECT_EQ(granted, "c");
}

TEST_F(BulkBudgetTest, OneThatEndsWhileItWaitsIsForgotten) {
  auto a = Ask(kOne, 50, "a");
  auto b = Ask(kOne, 50, "b");
  auto c = Ask(kOne, 50, "c");
  b.reset();
  EXPECT_EQ(granted, "a");
  a.reset();
  EXPECT_EQ(granted, "ac");
  c.reset();
  EXPECT_EQ(budget->in_flight(), 0u);
}

}  // namespace
}  // namespace gradwire::rpc
