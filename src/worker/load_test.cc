// Whole workers in one process, over TCP: nesting, races, back-pressure and ends that the simulation cannot show.
#include "gradwire/worker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/event.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

// Workers that know each other; they end together.
class Workers {
 public:
  Workers(size_t count, WorkerOptions common, const std::function<void(Functions&, size_t)>& add = {}) {
    const auto store = std::make_shared<TestStore>();
    workers_.resize(count);
    std::vector<std::thread> starts;
    for (size_t rank = 0; rank < count; ++rank) {
      WorkerOptions options = common;
      options.name = "worker" + std::to_string(rank);
      options.rank = static_cast<int>(rank);
      options.world_size = static_cast<int>(count);
      options.store = store;
      options.functions = std::make_shared<Functions>();
      if (add) add(*options.functions, rank);
      starts.emplace_back([this, rank, options] { workers_[rank] = std::make_unique<Worker>(options); });
    }
    for (auto& start : starts) start.join();
  }
  ~Workers() { End(); }

  void End() {
    std::vector<std::thread> ends;
    for (auto& worker : workers_) {
      if (worker) ends.emplace_back([&worker] { worker->shutdown(); });
    }
    for (auto& end : ends) end.join();
    workers_.clear();
  }
  void Kill(size_t rank) { workers_[rank].reset(); }
  Worker& operator[](size_t rank) { return *workers_[rank]; }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

thread_local bool is_caller = false;

const Function<int64_t(int64_t)> kChain{"chain"}, kSame{"same"}, kLate{"late"};

// `chain` calls itself on the next worker until nothing is left.
std::function<void(Functions&, size_t)> Chains(Workers*& workers, size_t count) {
  return [&workers, count](Functions& functions, size_t rank) {
    functions.Add("chain", [&workers, count, rank](int64_t left) -> int64_t {
      if (left == 0) return 0;
      const std::string next = "worker" + std::to_string((rank + 1) % count);
      return 1 + (*workers)[rank].rpc_sync(next, kChain, left - 1);
    });
  };
}

TEST(C3, AChainOfDepth200FinishesWithOneThreadEach) {
  Workers* all = nullptr;
  Workers workers(2, {.num_worker_threads = 1}, Chains(all, 2));
  all = &workers;
  EXPECT_EQ(workers[0].rpc_sync("worker1", kChain, int64_t{200}), 200);
}

TEST(C3, SixtyFourChainsOfDepth8FinishOnFourThreads) {
  Workers* all = nullptr;
  Workers workers(3, {.num_worker_threads = 4}, Chains(all, 3));
  all = &workers;
  std::vector<Future<int64_t>> chains;
  for (size_t i = 0; i < 64; ++i) {
    chains.push_back(workers[i % 3].rpc_async("worker" + std::to_string((i + 1) % 3), kChain, int64_t{8}));
  }
  EXPECT_EQ(wait_all(chains), std::vector<int64_t>(64, 8));
}

TEST(C3, HandlersThatWaitUnseenAreReplaced) {
  constexpr int kBlocked = 4;
  Event release;
  std::atomic<int> blocked{0};
  Workers workers(2, {.num_worker_threads = 2}, [&](Functions& functions, size_t) {
    functions.Add("block", [&](int64_t value) {
      ++blocked;
      release.Wait();
      return value;
    });
    functions.Add("release", [&](int64_t value) {
      release.Set();
      return value;
    });
  });
  std::vector<Future<int64_t>> calls;
  for (int64_t i = 0; i < kBlocked; ++i) {
    calls.push_back(workers[0].rpc_async("worker1", Function<int64_t(int64_t)>{"block"}, i));
  }
  calls.push_back(workers[0].rpc_async("worker1", Function<int64_t(int64_t)>{"release"}, int64_t{kBlocked}));
  EXPECT_EQ(wait_all(calls), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(blocked, kBlocked);
}

// A thread that waits for its reply may read the other side's requests meanwhile: they run elsewhere, and as ever.
TEST(O1, CallersThatReadForOthersKeepTheirSettingsToThemselves) {
  const Function<at::Tensor(at::Tensor)> plain{"plain"}, back{"back"};
  Workers* all = nullptr;
  Workers workers(2, {.num_worker_threads = 2}, [&](Functions& functions, size_t rank) {
    functions.Add("plain",
                  [](at::Tensor value) {
                    if (is_caller) throw std::runtime_error("a caller's thread");
                    if (value.is_inference() || c10::InferenceMode::is_enabled())
                      throw std::runtime_error("a caller's setting");
                    return value + 1;
                  },
                  {.is_short = true});
    functions.Add("back", [&all, &back, &plain, rank](at::Tensor value) {
      return (*all)[rank].rpc_sync("worker" + std::to_string(1 - rank), plain, value);
    });
  });
  all = &workers;
  std::vector<std::thread> callers;
  for (size_t from = 0; from < 2; ++from) {
    for (const auto* function : {&plain, &back}) {
      callers.emplace_back([&workers, function, from] {
        is_caller = true;
        const c10::InferenceMode inference;
        for (int i = 0; i < 500; ++i) {
          const at::Tensor sum =
              workers[from].rpc_sync("worker" + std::to_string(1 - from), *function, at::full({2}, i));
          ASSERT_EQ(sum.sum().item<int64_t>(), 2 * (i + 1));
        }
      });
    }
  }
  for (auto& caller : callers) caller.join();
}

TEST(C1, ATimeoutRacesItsReplyTenThousandTimes) {
  Workers workers(2, {}, [](Functions& functions, size_t) {
    // About as long as the timeout, which is in whole milliseconds.
    functions.Add("late", [](int64_t value) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(800 + value % 400);
      while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
      return value;
    });
  });
  int64_t values = 0, timeouts = 0;
  for (int64_t round = 0; round < 100; ++round) {
    std::vector<Future<int64_t>> calls;
    for (int64_t i = 0; i < 100; ++i) {
      calls.push_back(workers[0].rpc_async<int64_t>("worker1", "late", std::tuple<int64_t>(round * 100 + i),
                                                    {.timeout = milliseconds(1)}));
    }
    for (int64_t i = 0; i < 100; ++i) {
      try {
        ASSERT_EQ(calls[static_cast<size_t>(i)].wait(), round * 100 + i);
        ++values;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kTimedOut) << error.what();
        ++timeouts;
      }
    }
  }
  EXPECT_EQ(values + timeouts, 10'000);
  EXPECT_GT(timeouts, 0);
}

TEST(C4, FarMoreCallsThanMayWaitAllEnd) {
  Workers workers(2, {.num_worker_threads = 2},
                  [](Functions& functions, size_t) { functions.Add("same", [](int64_t value) { return value; }); });
  std::vector<std::thread> callers;
  for (size_t from = 0; from < 2; ++from) {
    callers.emplace_back([&workers, from] {
      std::vector<Future<int64_t>> calls;
      for (int64_t i = 0; i < 20'000; ++i) {
        calls.push_back(workers[from].rpc_async("worker" + std::to_string(1 - from), kSame, i));
      }
      const std::vector<int64_t> values = wait_all(calls);
      for (int64_t i = 0; i < 20'000; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(C4, AWorkerMayRefuseInsteadOfWaiting) {
  Event release;
  Workers workers(2, {.num_worker_threads = 1, .refuse_when_overloaded = true}, [&](Functions& functions, size_t) {
    functions.Add("late", [&](int64_t value) {
      release.Wait();
      return value;
    });
  });
  std::vector<Future<int64_t>> calls;
  try {
    for (;;) calls.push_back(workers[0].rpc_async("worker1", kLate, int64_t{1}));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOverloaded);
    EXPECT_NE(error.failure().text.find("worker1"), std::string::npos);
  }
  EXPECT_GE(calls.size(), 1024u);
  release.Set();
  wait_all(calls);
}

TEST(Cancel, ReachesAHandlerThatRunsAndOneThatWaitsForAThread) {
  Event started, saw;
  std::atomic<int> runs{0};
  Workers workers(2, {.num_worker_threads = 1}, [&](Functions& functions, size_t) {
    functions.Add("until_cancelled", [&](int64_t value) {
      ++runs;
      started.Set();
      while (!this_call_cancelled()) std::this_thread::yield();
      saw.Set();
      return value;
    });
  });
  const Function<int64_t(int64_t)> function{"until_cancelled"};
  const auto running = workers[0].rpc_async("worker1", function, int64_t{1});
  ASSERT_TRUE(started.Wait(std::chrono::seconds(60)));
  const auto waiting = workers[0].rpc_async("worker1", function, int64_t{2});
  EXPECT_TRUE(waiting.cancel());
  EXPECT_TRUE(running.cancel());
  for (const auto& call : {running, waiting}) {
    try {
      call.wait();
      ADD_FAILURE() << "a value";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
  }
  EXPECT_TRUE(saw.Wait(std::chrono::seconds(60)));
  workers.End();
  EXPECT_EQ(runs, 1);
}

TEST(M2, TheOthersEndAlthoughTheFirstHasDied) {
  Workers workers(4, {}, [](Functions& functions, size_t) { functions.Add("same", [](int64_t v) { return v; }); });
  EXPECT_EQ(workers[2].rpc_sync("worker3", kSame, int64_t{5}), 5);
  workers.Kill(0);
  workers.End();
}

}  // namespace
}  // namespace gradwire
