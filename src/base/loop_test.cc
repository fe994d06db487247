#include "base/loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <vector>

#include "base/event.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

TEST(Loop, TimersFireInOrderAndNotBeforeTheirTime) {
  Loop loop;
  std::vector<int> order;
  Event done;
  const TimePoint begin = loop.Now();
  loop.CallAt(begin + milliseconds(20), [&] { order.push_back(2), done.Set(); });
  loop.CallAt(begin + milliseconds(10), [&] { order.push_back(1); });
  loop.CallAt(begin - milliseconds(10), [&] { order.push_back(0); });
  ASSERT_TRUE(done.Wait());
  EXPECT_GE(loop.Now(), begin + milliseconds(20));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Loop, AnEarlierTimerWakesALongerSleep) {
  Loop loop;
  Event idle, done;
  loop.CallAt(loop.Now() + std::chrono::hours(1), [] {});
  loop.Post([&] { idle.Set(); });
  idle.Wait();
  loop.CallAt(loop.Now() + milliseconds(1), [&] { done.Set(); });
  EXPECT_TRUE(done.Wait(std::chrono::seconds(20)));
}

TEST(Loop, ACancelledTimerDoesNotFire) {
  Loop loop;
  std::atomic<bool> fired{false};
  Event done;
  const TimerId id = loop.CallAt(loop.Now() + milliseconds(5), [&] { fired = true; });
  loop.Cancel(id);
  loop.Cancel(id);
  loop.Cancel(12345);
  loop.CallAt(loop.Now() + milliseconds(10), [&] { done.Set(); });
  done.Wait();
  EXPECT_FALSE(fired);
}

TEST(Loop, TellsWhenADescriptorIsReady) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  {
    Loop loop;
    Event readable;
    loop.Watch(pipe_ends[0], EPOLLIN | EPOLLET, [&](uint32_t events) {
      EXPECT_TRUE(events & EPOLLIN);
      EXPECT_TRUE(loop.InLoopThread());
      readable.Set();
    });
    ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
    readable.Wait();
    loop.Unwatch(pipe_ends[0]);
  }
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(Loop, RunsWhatWasPostedBeforeItStops) {
  int ran = 0;
  Loop loop;
  for (int i = 0; i < 100; ++i) loop.Post([&] { ++ran; });
  loop.Stop();
  EXPECT_EQ(ran, 100);
  loop.Post([&] { ++ran; });
  loop.Stop();
  EXPECT_EQ(ran, 100);
}

TEST(Loop, LetsGoOfTimersWhenItStops) {
  const auto held = std::make_shared<int>();
  Loop loop;
  loop.CallAt(loop.Now() + std::chrono::hours(1), [held] {});
  EXPECT_EQ(held.use_count(), 2);
  loop.Stop();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Loop, KeepsNoTimerThatComesAfterItsEnd) {
  Loop loop;
  loop.Stop();
  auto token = std::make_shared<int>();
  loop.Cancel(loop.CallAt(loop.Now(), [token] {}));
  loop.CallAt(loop.Now() + std::chrono::hours(1), [token] {});
  EXPECT_EQ(token.use_count(), 1);
}

TEST(Loop, UsesNoProcessorWhenIdle) {
  Loop loop;
  Event done;
  loop.CallAt(loop.Now() + std::chrono::hours(1), [] {});
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  done.Wait(milliseconds(300));
  getrusage(RUSAGE_SELF, &after);
  const auto spent = [](const rusage& r) { return r.ru_utime.tv_sec * 1'000'000 + r.ru_utime.tv_usec; };
  EXPECT_LT(spent(after) - spent(before), 30'000) << "microseconds in 300 ms";
}

}  // namespace
}  // namespace gradwire
