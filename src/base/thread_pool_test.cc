#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/loop.h"

namespace gradwire {
namespace {

TEST(ThreadPool, RunsEverythingThatIsPosted) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool({.max_running = 3});
    std::vector<std::thread> posters;
    for (int p = 0; p < 4; ++p) {
      posters.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) pool.Post([&] { ++ran; });
      });
    }
    for (auto& poster : posters) poster.join();
  }
  EXPECT_EQ(ran, 4000);
}

TEST(ThreadPool, RunsNoMoreThanItsLimitAtOneTime) {
  std::atomic<int> running{0}, most{0};
  ThreadPool pool({.max_running = 2});
  for (int i = 0; i < 500; ++i) {
    pool.Post([&] {
      const int now = ++running;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::yield();
      --running;
    });
  }
  pool.Stop();
  EXPECT_LE(most, 2);
}

// C4: one peer's flood delays nobody else's calls, and nothing of the library's own.
TEST(ThreadPool, PeersTakeTurnsAndTheLibraryGoesFirst) {
  std::string order;
  ThreadPool pool({.max_running = 1});
  Event begun, go_on;
  pool.Post([&] {
    begun.Set();
    go_on.Wait();
  });
  begun.Wait();
  for (int i = 0; i < 3; ++i) pool.PostHandler(1, [&] { order += 'a'; });
  for (int i = 0; i < 2; ++i) pool.PostHandler(2, [&] { order += 'b'; });
  pool.Post([&] { order += 'x'; });
  go_on.Set();
  pool.Stop();
  EXPECT_EQ(order, "xababa");
}

TEST(ThreadPool, AThreadThatWaitsIsReplacedToAnyDepth) {  // C3
  ThreadPool pool({.max_running = 1});
  std::function<void(int, Event&)> nest = [&](int depth, Event& done) {
    if (depth > 0) {
      Event inner;
      pool.Post([&, depth] { nest(depth - 1, inner); });
      EXPECT_TRUE(pool.Await(inner));
    }
    done.Set();
  };
  Event all;
  pool.Post([&] { nest(200, all); });
  EXPECT_TRUE(pool.Await(all));
}

// C3: handlers that block on what only later tasks bring, in a way that the pool cannot see.
TEST(ThreadPool, AThreadThatIsStuckIsReplaced) {
  const auto loop = std::make_shared<Loop>();
  ThreadPool pool({.max_running = 2, .clock = loop, .stuck_after = std::chrono::milliseconds(20)});
  constexpr int kDepth = 6;
  Event brought[kDepth + 1];
  for (int i = 0; i < kDepth; ++i) {
    pool.Post([&, i] {
      brought[i + 1].Wait();
      brought[i].Set();
    });
  }
  pool.Post([&] { brought[kDepth].Set(); });
  EXPECT_TRUE(brought[0].Wait(std::chrono::seconds(60)));
}

TEST(ThreadPool, AThreadThatComputesIsNotReplaced) {
  std::atomic<int> running{0}, most{0};
  const auto loop = std::make_shared<Loop>();
  ThreadPool pool({.max_running = 1, .clock = loop});
  for (int i = 0; i < 3; ++i) {
    pool.Post([&, i] {
      most = std::max(most.load(), ++running);
      timespec used{};
      do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      } while (used.tv_sec == 0 && used.tv_nsec < (i + 1) * 250'000'000);
      --running;
    });
  }
  pool.Stop();
  EXPECT_EQ(most, 1);
}

TEST(ThreadPool, StuckThreadsThatGoOnCountAgain) {
  std::atomic<int> running{0}, most{0};
  const auto loop = std::make_shared<Loop>();
  ThreadPool pool({.max_running = 1, .clock = loop, .stuck_after = std::chrono::milliseconds(20)});
  Event go_on, went_on;
  pool.Post([&] {
    go_on.Wait();
    went_on.Set();
  });
  pool.Post([&] { go_on.Set(); });
  went_on.Wait();
  for (int i = 0; i < 200; ++i) {
    pool.Post([&] {
      most = std::max(most.load(), ++running);
      std::this_thread::yield();
      --running;
    });
  }
  pool.Stop();
  EXPECT_LE(most, 2) << "one that still ends, and one";
}

TEST(ThreadPool, AwaitOutsideThePoolIsAPlainWait) {
  ThreadPool pool({.max_running = 1});
  Event event;
  EXPECT_FALSE(pool.Await(event, std::chrono::milliseconds(1)));
  pool.Post([&] { event.Set(); });
  EXPECT_TRUE(pool.Await(event));
}

TEST(ThreadPool, EachThreadStartsAndStopsByTheCallbacks) {
  std::mutex mutex;
  std::multiset<std::thread::id> started, stopped;
  {
    ThreadPool pool({.max_running = 4,
                     .thread_start =
                         [&] {
                           std::lock_guard lock(mutex);
                           started.insert(std::this_thread::get_id());
                         },
                     .thread_stop =
                         [&] {
                           std::lock_guard lock(mutex);
                           stopped.insert(std::this_thread::get_id());
                         }});
    for (int i = 0; i < 100; ++i) pool.Post([] {});
  }
  EXPECT_EQ(started, stopped);
  EXPECT_FALSE(started.empty());
}

TEST(ThreadPool, IdleThreadsLeaveButOne) {
  std::atomic<int> alive{0};
  Event last_but_one_left;
  ThreadPool pool({.max_running = 4,
                   .idle_before_exit = std::chrono::milliseconds(20),
                   .thread_start = [&] { ++alive; },
                   .thread_stop =
                       [&] {
                         if (--alive == 1) last_but_one_left.Set();
                       }});
  std::vector<std::unique_ptr<Event>> gates;
  for (int i = 0; i < 4; ++i) gates.push_back(std::make_unique<Event>());
  Event all_in;
  std::atomic<int> in{0};
  for (int i = 0; i < 4; ++i) {
    pool.Post([&, i] {
      if (++in == 4) all_in.Set();
      gates[i]->Wait();
    });
  }
  all_in.Wait();
  for (auto& gate : gates) gate->Set();
  EXPECT_TRUE(last_but_one_left.Wait(std::chrono::seconds(20)));
  EXPECT_EQ(alive, 1);
}

TEST(ThreadPool, ATaskIsDestroyedBeforeTheNextAndWithNoLockHeld) {
  ThreadPool pool({.max_running = 1});
  struct PostsWhenDestroyed {
    ThreadPool& pool;
    Event& event;
    ~PostsWhenDestroyed() {
      pool.Post([&event = event] { event.Set(); });
    }
  };
  Event event;
  pool.Post([guard = std::make_unique<PostsWhenDestroyed>(pool, event)] {});
  EXPECT_TRUE(event.Wait(std::chrono::seconds(20)));
}

TEST(ThreadPool, LeavesATaskThatDoesNotEndToItself) {
  auto go_on = std::make_shared<Event>();
  auto ended = std::make_shared<Event>();
  auto dropped = std::make_shared<int>();
  {
    ThreadPool pool({.max_running = 1});
    pool.Post([go_on, ended] {
      go_on->Wait();
      ended->Set();
    });
    pool.Post([dropped] { ADD_FAILURE() << "was queued behind it and must be dropped"; });
    EXPECT_FALSE(pool.Stop(std::chrono::milliseconds(50)));
    EXPECT_EQ(dropped.use_count(), 1);
    pool.Post([dropped] { ADD_FAILURE() << "came after the end"; });
    EXPECT_EQ(dropped.use_count(), 1);
  }
  go_on->Set();
  EXPECT_TRUE(ended->Wait(std::chrono::seconds(20)));
}

TEST(ThreadPool, StopsWithinItsLimitWhenTasksEnd) {
  ThreadPool pool({.max_running = 2});
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) pool.Post([&] { ++ran; });
  EXPECT_TRUE(pool.Stop(std::chrono::seconds(20)));
  EXPECT_EQ(ran, 100);
}

// C3: what blocks inside a handler of one worker while it waits for another one gives way as well.
TEST(ThreadPool, AWaitForAnotherPoolIsReplacedToo) {
  ThreadPool one({.max_running = 1}), other({.max_running = 1});
  Event back, done;
  one.Post([&] {
    other.Post([&] { one.Post([&] { back.Set(); }); });
    EXPECT_TRUE(other.Await(back));
    done.Set();
  });
  EXPECT_TRUE(done.Wait(std::chrono::seconds(20)));
}

TEST(ThreadPool, CountsATaskUntilItIsDestroyed) {
  ThreadPool pool({.max_running = 1});
  struct SeesItselfCounted {
    ThreadPool& pool;
    Event& event;
    ~SeesItselfCounted() {
      EXPECT_EQ(pool.active(), 1u);
      event.Set();
    }
  };
  Event event;
  pool.Post([guard = std::make_unique<SeesItselfCounted>(pool, event)] {});
  ASSERT_TRUE(event.Wait(std::chrono::seconds(20)));
  EXPECT_EQ(pool.queued(), 0u);
}

TEST(ThreadPool, TasksPostedWhileItStopsStillRun) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> ran{0};
    ThreadPool pool({.max_running = 2});
    std::function<void(int)> chain = [&](int left) {
      ++ran;
      if (left > 0) pool.Post([&, left] { chain(left - 1); });
    };
    for (int i = 0; i < 4; ++i) pool.Post([&] { chain(20); });
    pool.Stop();
    EXPECT_EQ(ran, 4 * 21);
  }
}

TEST(ThreadPool, ATaskMayHoldTheLastHandleOfItsPool) {
  Event ran;
  {
    auto pool = std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = 2});
    auto let_go = std::make_shared<Event>();
    pool->Post([pool, let_go, &ran]() mutable {
      let_go->Wait();
      pool.reset();
      ran.Set();
    });
    pool.reset();
    let_go->Set();
  }
  EXPECT_TRUE(ran.Wait(std::chrono::seconds(20)));
}

// Threads that are wanted again leave last: a steady trickle of tasks keeps one, not all.
TEST(ThreadPool, ATrickleOfTasksDoesNotKeepIdleThreadsAlive) {
  std::atomic<int> alive{0};
  ThreadPool pool({.max_running = 4,
                   .idle_before_exit = std::chrono::milliseconds(50),
                   .thread_start = [&] { ++alive; },
                   .thread_stop = [&] { --alive; }});
  Event gate;
  std::atomic<int> in{0};
  for (int i = 0; i < 4; ++i) pool.Post([&] { ++in, gate.Wait(); });
  while (in < 4) std::this_thread::yield();
  gate.Set();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (alive > 2 && std::chrono::steady_clock::now() < end) {
    Event done;
    pool.Post([&] { done.Set(); });
    done.Wait();
    Event pause;
    pause.Wait(std::chrono::milliseconds(1));
  }
  EXPECT_LE(alive, 2);
}

}  // namespace
}  // namespace gradwire
