#include "gradwire/wait_hook.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/thread_pool.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

int looks = 0;
Event* awaited = nullptr;

TEST(WaitHook, EndsAWaitByThrowing) {
  ThreadPool pool({});
  Event never;
  const WaitHook hook([] { throw std::runtime_error("interrupted"); });
  EXPECT_THROW(pool.Await(never), std::runtime_error);
}

TEST(WaitHook, LooksUntilTheEventIsSet) {
  ThreadPool pool({});
  Event event;
  awaited = &event;
  looks = 0;
  const WaitHook hook([] {
    if (++looks == 3) awaited->Set();
  });
  EXPECT_TRUE(pool.Await(event));
  EXPECT_EQ(looks, 3);
}

TEST(WaitHook, KeepsTheLimitOfTheWait) {
  ThreadPool pool({});
  Event never;
  looks = 0;
  const WaitHook hook([] { ++looks; });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(pool.Await(never, milliseconds(150)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(150));
  EXPECT_LE(looks, 1);
}

TEST(WaitHook, InnerOneHidesTheOuterOne) {
  const WaitHook outer([] {});
  {
    const WaitHook inner(nullptr);
    EXPECT_EQ(WaitHook::current(), nullptr);
  }
  EXPECT_NE(WaitHook::current(), nullptr);
}

}  // namespace
}  // namespace gradwire
