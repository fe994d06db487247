// ThreadPool: the Executor of a Worker. Grows on demand, shrinks when idle, and replaces threads that wait (C3).
//
// Handlers may fill max_running threads, tasks of the library as many, and both together one more than that: neither
// kind keeps the other from running. One further thread, the keeper, starts the others, as a poster never waits, and
// watches for waits that the library cannot see. src/base/stuck_watch.h says when it adds a thread for them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "base/executor.h"

namespace gradwire {

class ThreadPool final : public Executor {
 public:
  struct Options {
    // Tasks of a kind that run at one time, waiting ones not counted; at least 1. One whose wait ends goes on at once.
    size_t max_running = 16;
    std::chrono::milliseconds idle_before_exit{2000};  // one idle thread stays for ever, the others end after this
    // For waits that the library cannot see, also those of a task that polls: while tasks of a kind are queued and none
    // of them has begun for `stuck_after`, one more thread runs until a stuck task goes on; at most `max_stuck` more,
    // and fewer, later, while the threads compute. 0: off.
    std::chrono::milliseconds stuck_after{200};
    size_t max_stuck = 64;
    std::function<void()> thread_start;  // first and last thing that each thread runs; may be empty
    std::function<void()> thread_stop;
  };
  explicit ThreadPool(Options options);
  ~ThreadPool() override;  // Stop()

  void Post(Task task) override;
  void PostHandler(uint64_t peer, Task task) override;
  bool Await(Event& event, std::optional<Duration> limit = std::nullopt) override;
  bool InTask() const override;
  bool OwnsThisThread() const override;

  // Tasks that wait for a thread, and tasks that run or wait inside Await().
  size_t queued() const;
  size_t active() const;

  // Runs what is queued, then joins all threads; tasks posted meanwhile still run, later ones are dropped. Idempotent.
  // False when some task has not ended within `limit`: queued tasks are dropped then, and the threads are left to
  // themselves. What their tasks use must outlive them. False on a pool thread too, when a task held the pool's last
  // handle: it joins nothing, the threads run what is queued and end.
  bool Stop(std::optional<Duration> limit = std::nullopt);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gradwire
