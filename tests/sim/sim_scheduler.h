// SimScheduler: clock and executor of a simulation in one thread. A seed chooses what runs next; time jumps to the next
// timer when nothing else can run. The same seed gives the same run.
#pragma once

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"

namespace gradwire::sim {

class SimScheduler final : public Clock, public Executor {
 public:
  explicit SimScheduler(uint64_t seed) : random_(seed) {}

  TimePoint Now() const override { return now_; }
  TimerId CallAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;
  void Post(Task task) override { runnable_.push_back(std::move(task)); }
  // Runs other tasks until the event is set. Throws Error(kInternal) when nothing can set it any more.
  bool Await(Event& event, std::optional<Duration> limit = std::nullopt) override;

  // Runs everything that can run now; timers are left alone.
  void RunReady();
  // Lets time pass: timers up to then fire.
  void Advance(Duration duration);
  size_t steps() const { return steps_; }

 private:
  bool RunOne();
  bool FireNext(TimePoint until);

  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<Task> runnable_;
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::map<TimerId, TimePoint> when_;
  TimerId last_timer_ = 0;
  size_t steps_ = 0;
};

}  // namespace gradwire::sim
