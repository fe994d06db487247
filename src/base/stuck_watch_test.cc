#include "base/stuck_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/event.h"

namespace gradwire {
namespace {

constexpr bool kWaits = false, kComputes = true;

TEST(StuckWatch, ALineThatWaitsGetsAThreadEachPeriod) {  // C3
  StuckWatch watch(2, 3);
  watch.Begin(7);
  EXPECT_TRUE(watch.Look(7, kWaits, 0));
  EXPECT_TRUE(watch.Look(7, kWaits, 1));
  EXPECT_TRUE(watch.Look(7, kWaits, 2));
  EXPECT_FALSE(watch.Look(7, kWaits, 3)) << "that is the limit";
}

TEST(StuckWatch, ALineThatGoesOnGetsNone) {
  StuckWatch watch(2, 64);
  watch.Begin(0);
  for (uint64_t begun = 1; begun < 100; ++begun) EXPECT_FALSE(watch.Look(begun, begun % 2 != 0, 0));
}

TEST(StuckWatch, ALineThatComputesGetsFewAndLate) {
  StuckWatch watch(4, 64);
  watch.Begin(0);
  size_t stuck = 0;
  int periods = 0;
  for (; periods < 100; ++periods) {
    if (watch.Look(0, kComputes, stuck)) ++stuck;
    EXPECT_LE(stuck * StuckWatch::kPatience, static_cast<size_t>(periods) + 1);
  }
  EXPECT_EQ(stuck, 2u);
}

TEST(StuckWatch, ProgressBeginsThePatienceAnew) {
  StuckWatch watch(4, 64);
  watch.Begin(0);
  for (uint64_t round = 1; round < 10; ++round) {
    EXPECT_FALSE(watch.Look(round, kComputes, 0));
    for (int i = 1; i < StuckWatch::kPatience; ++i) EXPECT_FALSE(watch.Look(round, kComputes, 0));
  }
}

// What AnyComputes() says of a thread that runs `body`, which ends once told.
template <class Body>
int TimesOf100Computing(Body body) {
  std::atomic<pid_t> id{0};
  std::atomic<bool> end{false};
  std::thread thread([&] {
    id = gettid();
    body(end);
  });
  while (id == 0) std::this_thread::yield();
  int times = 0;
  for (int i = 0; i < 100; ++i) {
    Event().Wait(std::chrono::milliseconds(1));
    if (AnyComputes({id})) ++times;
  }
  end = true;
  thread.join();
  return times;
}

TEST(AnyComputes, TellsWhoComputesFromWhoWaitsOrPolls) {
  EXPECT_EQ(TimesOf100Computing([](const std::atomic<bool>& end) {
              while (!end) continue;
            }),
            100);
  EXPECT_LT(TimesOf100Computing([](const std::atomic<bool>& end) {
              while (!end) Event().Wait(std::chrono::milliseconds(1));
            }),
            100);
}

TEST(AnyComputes, NotAThreadThatIsGone) {
  pid_t id = 0;
  std::thread([&] { id = gettid(); }).join();
  EXPECT_FALSE(AnyComputes({id}));
  EXPECT_FALSE(AnyComputes({}));
}

}  // namespace
}  // namespace gradwire
