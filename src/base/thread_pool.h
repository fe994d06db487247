// ThreadPool: the Executor of a Worker. Grows on demand, shrinks when idle, and replaces threads that wait (C3).
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
    // Threads that run tasks at one time, waiting ones not counted; at least 1. One whose wait ends goes on at once.
    size_t max_running = 16;
    std::chrono::milliseconds idle_before_exit{2000};  // one idle thread stays for ever, the others end after this
    // For waits that the library cannot see: while tasks are queued, none has begun for `stuck_after`, and no thread
    // has used the processor, one more thread runs until a stuck one goes on; at most `max_stuck` more. Off without.
    std::shared_ptr<Clock> clock{};
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
