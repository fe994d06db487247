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
  ThreadPool pool({.max_running = 2, .stuck_after{}});
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
  pool.PostHandler(1, [&] {
    begun.Set();
    go_on.Wait();
  });
  begun.Wait();
  for (int i = 0; i < 3; ++i) pool.PostHandler(1, [&] { order += 'a'; });
  for (int i = 0; i < 2; ++i) pool.PostHandler(2, [&] { order += 'b'; });
  go_on.Set();
  pool.Stop();
  EXPECT_EQ(order, "ababa");
}

// The library's own tasks run though each thread is busy in a handler and more handlers wait, and the other way round.
TEST(ThreadPool, NeitherKindFillsTheOther) {
  for (const bool handlers_block : {true, false}) {
    ThreadPool pool({.max_running = 2, .stuck_after{}});
    Event go_on;
    const auto post = [&](bool handler, Task task) {
      handler ? pool.PostHandler(1, std::move(task)) : pool.Post(std::move(task));
    };
    std::atomic<int> inside{0}, most{0};
    for (int i = 0; i < 5; ++i) {
      post(handlers_block, [&] {
        most = std::max(most.load(), ++inside);
        go_on.Wait();
        --inside;
      });
    }
    while (inside < 2) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {
      Event ran;
      post(!handlers_block, [&] { ran.Set(); });
      EXPECT_TRUE(ran.Wait(std::chrono::seconds(60)));
    }
    EXPECT_EQ(inside, 2);
    go_on.Set();
    pool.Stop();
    EXPECT_LE(most, 2);
  }
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
  ThreadPool pool({.max_running = 2, .stuck_after = std::chrono::milliseconds(20)});
  constexpr int kDepth = 6;
  Event brought[kDepth + 1];
  for (int i = 0; i < kDepth; ++i) {
    pool.PostHandler(1, [&, i] {
      brought[i + 1].Wait();
      brought[i].Set();
    });
  }
  pool.PostHandler(1, [&] { brought[kDepth].Set(); });
  EXPECT_TRUE(brought[0].Wait(std::chrono::seconds(60)));
}

// The same with handlers that poll: they use the processor, a little, and never end.
TEST(ThreadPool, AThreadThatPollsIsReplaced) {
  ThreadPool pool({.max_running = 2, .stuck_after = std::chrono::milliseconds(50)});
  constexpr int kDepth = 6;
  Event brought[kDepth + 1];
  const auto poll = [&](int i) {
    while (!brought[i + 1].is_set()) Event().Wait(std::chrono::microseconds(500));
    brought[i].Set();
  };
  for (int i = 0; i < kDepth; ++i) {
    i % 2 ? pool.Post([&, i] { poll(i); }) : pool.PostHandler(i, [&, i] { poll(i); });
  }
  pool.PostHandler(1, [&] { brought[kDepth].Set(); });
  EXPECT_TRUE(brought[0].Wait(std::chrono::seconds(60)));
}

// And with one that spins without a pause.
TEST(ThreadPool, AThreadThatSpinsIsReplacedOnce) {
  ThreadPool pool({.max_running = 1, .stuck_after = std::chrono::milliseconds(20)});
  Event brought, ended;
  pool.PostHandler(1, [&] {
    while (!brought.is_set()) std::this_thread::yield();
    ended.Set();
  });
  pool.PostHandler(1, [&] { brought.Set(); });
  EXPECT_TRUE(ended.Wait(std::chrono::seconds(60)));
}

// Each would only take the processor from the others.
TEST(ThreadPool, ThreadsThatComputeAreHardlyAnyMore) {
  std::atomic<int> running{0}, most{0};
  ThreadPool pool({.max_running = 2, .stuck_after = std::chrono::milliseconds(20)});
  for (int i = 0; i < 12; ++i) {
    pool.PostHandler(i, [&] {
      int now = ++running;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      timespec from{}, used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
      do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      } while ((used.tv_sec - from.tv_sec) * 1000 + (used.tv_nsec - from.tv_nsec) / 1'000'000 < 200);
      --running;
    });
  }
  pool.Stop();
  EXPECT_LE(most, 3);
}

TEST(ThreadPool, StuckThreadsThatGoOnCountAgain) {
  std::atomic<int> running{0}, most{0};
  ThreadPool pool({.max_running = 1, .stuck_after = std::chrono::milliseconds(20)});
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
    ThreadPool pool({.max_running = 1, .stuck_after{}});
    Event begun;
    pool.Post([go_on, ended, &begun] {
      begun.Set();
      go_on->Wait();
      ended->Set();
    });
    begun.Wait();
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
