// Loop: one thread that waits for descriptors and timers (epoll). The real Clock, and the I/O thread of a Worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace gradwire {

class Loop final : public Clock {
 public:
  // Starts the thread at once. `thread_start` runs first on it, may be empty.
  explicit Loop(std::function<void()> thread_start = {});
  ~Loop() override;  // Stop()

  TimePoint Now() const override;
  TimerId CallAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;

  // Watches a descriptor: `ready(epoll event bits)` runs on the loop's thread. `events` as of epoll_ctl (EPOLLIN,
  // EPOLLOUT, EPOLLET, ...). The descriptor stays its caller's. Any thread.
  using ReadyCallback = std::function<void(uint32_t events)>;
  void Watch(int fd, uint32_t events, ReadyCallback ready);
  void Change(int fd, uint32_t events);
  // After return `ready` will not start any more; on the loop's thread it is not running either. Any thread.
  void Unwatch(int fd);

  // Runs a task on the loop's thread soon. Any thread.
  void Post(Task task);
  bool InLoopThread() const;

  // Ends the thread after the tasks queued so far; later ones and timers are dropped. Idempotent; not from the loop's
  // thread.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
