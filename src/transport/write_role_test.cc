#include "transport/write_role.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gradwire::transport {
namespace {

using Given = WriteRole::Given;

TEST(WriteRole, IsNotToBeHadBeforeTheLineIsThere) {
  WriteRole role;
  EXPECT_FALSE(role.Wake());
  EXPECT_TRUE(role.OnRoom());
  EXPECT_FALSE(role.OnRoom());
  EXPECT_EQ(role.GiveBack(), Given::kWanted);  // the early wake
  role.BeforePull();
  EXPECT_EQ(role.GiveBack(), Given::kFree);
  EXPECT_FALSE(role.OnRoom());
}

class OpenWriteRole : public testing::Test {
 protected:
  OpenWriteRole() {
    EXPECT_TRUE(role_.OnRoom());
    EXPECT_EQ(role_.GiveBack(), Given::kFree);
  }
  WriteRole role_;
};

TEST_F(OpenWriteRole, OneHasIt) {
  EXPECT_TRUE(role_.Wake());
  EXPECT_FALSE(role_.Wake());
  role_.BeforePull();
  EXPECT_EQ(role_.GiveBack(), Given::kFree);
  EXPECT_TRUE(role_.Wake());
}

TEST_F(OpenWriteRole, AWakeBeforeThePullIsServedByIt) {
  EXPECT_TRUE(role_.Wake());
  role_.Wake();
  role_.BeforePull();
  EXPECT_EQ(role_.GiveBack(), Given::kFree);
}

TEST_F(OpenWriteRole, AWakeAfterTheLookAsksForAnotherPull) {
  EXPECT_TRUE(role_.Wake());
  role_.BeforePull();
  role_.Wake();
  EXPECT_EQ(role_.GiveBack(), Given::kWanted);
  EXPECT_FALSE(role_.Wake());  // it is still held
  role_.BeforePull();
  EXPECT_EQ(role_.GiveBack(), Given::kFree);
}

TEST_F(OpenWriteRole, WhileTheLineIsFullOnlyRoomGivesIt) {
  EXPECT_TRUE(role_.Wake());
  role_.BeforePull();
  EXPECT_EQ(role_.GiveBackUntilRoom(), Given::kFree);
  EXPECT_FALSE(role_.Wake());
  EXPECT_TRUE(role_.OnRoom());
  role_.BeforePull();
  EXPECT_EQ(role_.GiveBack(), Given::kFree);
}

TEST_F(OpenWriteRole, TheEndIsLeftToWhoeverHasIt) {
  EXPECT_TRUE(role_.Wake());
  EXPECT_FALSE(role_.End());
  role_.Wake();
  EXPECT_EQ(role_.GiveBack(), Given::kEnded);
  EXPECT_FALSE(role_.Wake());

  WriteRole full;
  EXPECT_TRUE(full.OnRoom());
  EXPECT_FALSE(full.End());
  EXPECT_EQ(full.GiveBackUntilRoom(), Given::kEnded);
  EXPECT_FALSE(full.OnRoom());
}

TEST_F(OpenWriteRole, AfterTheEndNobodyGetsIt) {
  EXPECT_TRUE(role_.End());
  EXPECT_FALSE(role_.Wake());
  EXPECT_FALSE(role_.OnRoom());

  WriteRole never_opened;
  EXPECT_TRUE(never_opened.End());
  EXPECT_FALSE(never_opened.OnRoom());
}

// WAKE: what each thread has put down before its wake is taken by somebody, whoever holds the role and however often
// the line is full meanwhile.
TEST_F(OpenWriteRole, NoWakeOfManyThreadsIsLost) {
  constexpr int kThreads = 4, kRounds = 20'000;
  std::atomic<int> waiting{0};
  int taken = 0;  // the role's own
  const auto pump = [&] {
    for (;;) {
      role_.BeforePull();
      if (const int some = waiting.exchange(0, std::memory_order_relaxed)) {
        taken += some;
        if (taken % 7 != 0) continue;
        EXPECT_EQ(role_.GiveBackUntilRoom(), Given::kFree);
        if (!role_.OnRoom()) return;
      } else if (role_.GiveBack() == Given::kFree) {
        return;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        waiting.fetch_add(1, std::memory_order_relaxed);
        if (role_.Wake()) pump();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(waiting, 0);
  EXPECT_EQ(taken, kThreads * kRounds);
}

}  // namespace
}  // namespace gradwire::transport
