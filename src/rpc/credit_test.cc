#include "rpc/credit.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "gradwire/error.h"

namespace gradwire::rpc {
namespace {

constexpr auto kWindow = Credit::kWindow;

struct Exhausted {
  Exhausted() {
    for (uint64_t i = 0; i < kWindow; ++i) EXPECT_TRUE(credit.Take());
  }
  bool Keep(int number) {
    Task send = [this, number] { sent.push_back(number); };
    return !credit.TakeOrKeep(send);
  }
  static void Run(std::vector<Task> tasks) {
    for (Task& task : tasks) task();
  }
  Credit credit;
  std::vector<int> sent;
};

TEST(C4, ARequestWaitsWhenTheWindowIsFull) {
  Exhausted e;
  EXPECT_FALSE(e.credit.Take());
  EXPECT_TRUE(e.Keep(1));
  EXPECT_TRUE(e.Keep(2));
  Exhausted::Run(e.credit.Grant(1));
  EXPECT_EQ(e.sent, (std::vector<int>{1}));
  EXPECT_FALSE(e.credit.Take()) << "not before those that wait";
  Exhausted::Run(e.credit.Grant(kWindow));
  EXPECT_EQ(e.sent, (std::vector<int>{1, 2}));
  EXPECT_TRUE(e.credit.Take());
}

TEST(C4, WhatWaitsForNobodyIsCountedAndGoes) {
  Exhausted e;
  for (int i = 0; i < 10; ++i) e.credit.Count();
  Exhausted::Run(e.credit.Grant(10));
  EXPECT_FALSE(e.credit.Take());
  Exhausted::Run(e.credit.Grant(11));
  EXPECT_TRUE(e.credit.Take());
}

TEST(C4, OneThatIsNotSentLetsTheNextGo) {
  Exhausted e;
  EXPECT_TRUE(e.Keep(1));
  Exhausted::Run(e.credit.GiveBack());
  EXPECT_EQ(e.sent, (std::vector<int>{1}));
}

TEST(C4, GrantsMayComeInAnyOrderButNotForMoreThanWasSent) {
  Exhausted e;
  Exhausted::Run(e.credit.Grant(512));
  Exhausted::Run(e.credit.Grant(256));
  for (int i = 0; i < 512; ++i) EXPECT_TRUE(e.credit.Take());
  EXPECT_FALSE(e.credit.Take());
  EXPECT_THROW(e.credit.Grant(kWindow + 513), Error);
}

TEST(C4, NobodyWaitsAfterTheEnd) {
  Exhausted e;
  EXPECT_TRUE(e.Keep(1));
  EXPECT_EQ(e.credit.Close().size(), 1u);
  EXPECT_TRUE(e.credit.Take());
  EXPECT_FALSE(e.Keep(2));
}

// The two sides together: however much is sent, as long as all is begun in the end, all goes, and the receiver never
// takes its peer for one that breaks the rule.
TEST(C4, EverythingGoesWhenEverythingIsBegun) {
  Credit sender, receiver;
  uint64_t sent = 0, begun = 0;
  const auto send_one = [&] {
    ++sent;
    receiver.Arrive();
  };
  for (int i = 0; i < 10'000; ++i) {
    Task send = send_one;
    if (sender.TakeOrKeep(send)) send();
  }
  while (begun < sent) {
    ++begun;
    ASSERT_LE(sent - begun, kWindow);
    if (const auto grant = receiver.Begin(true)) {
      for (Task& task : sender.Grant(*grant)) task();
    }
  }
  EXPECT_EQ(sent, 10'000u);
}

TEST(C4, TheReceiverKnowsWhoSendsWithoutCredit) {
  Credit receiver;
  for (uint64_t i = 0; i < kWindow; ++i) receiver.Arrive();
  EXPECT_THROW(receiver.Arrive(), Error);
}

// Requests that wait for nobody are begun before and after the others: no order of them makes a fault of it.
TEST(C4, RequestsThatWaitForNobodyAreNoFault) {
  std::mt19937 random(7);
  for (int run = 0; run < 100; ++run) {
    Credit sender, receiver;
    std::vector<bool> arrived;  // bounded or not
    for (int step = 0; step < 20'000; ++step) {
      const uint32_t choice = random() % 4;
      if (choice == 0) {
        sender.Count();
        arrived.push_back(false);
      } else if (choice < 3) {
        if (!sender.Take()) continue;
        arrived.push_back(true);
        ASSERT_NO_THROW(receiver.Arrive());
      } else if (!arrived.empty()) {
        const size_t which = random() % arrived.size();
        const bool bounded = arrived[which];
        arrived[which] = arrived.back();
        arrived.pop_back();
        if (const auto grant = receiver.Begin(bounded)) (void)sender.Grant(*grant);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::rpc
