#include "sim/sim_scheduler.h"

#include "gradwire/error.h"

namespace gradwire::sim {

TimerId SimScheduler::CallAt(TimePoint when, Task task) {
  const TimerId id = ++last_timer_;
  timers_.emplace(std::pair{when, id}, std::move(task));
  when_.emplace(id, when);
  return id;
}

void SimScheduler::Cancel(TimerId id) {
  auto it = when_.find(id);
  if (it == when_.end()) return;
  timers_.erase({it->second, id});
  when_.erase(it);
}

bool SimScheduler::RunOne() {
  if (runnable_.empty()) return false;
  const size_t chosen = random_() % runnable_.size();
  std::swap(runnable_[chosen], runnable_.back());
  Task task = std::move(runnable_.back());
  runnable_.pop_back();
  ++steps_;
  task();
  return true;
}

bool SimScheduler::FireNext(TimePoint until) {
  if (timers_.empty() || timers_.begin()->first.first > until) return false;
  auto first = timers_.begin();
  now_ = std::max(now_, first->first.first);
  when_.erase(first->first.second);
  Task task = std::move(first->second);
  timers_.erase(first);
  task();
  return true;
}

bool SimScheduler::Await(Event& event, std::optional<Duration> limit) {
  const TimePoint end = limit ? now_ + *limit : TimePoint::max();
  while (!event.is_set()) {
    if (RunOne() || FireNext(end)) continue;
    if (!limit) throw Error(ErrorCode::kInternal, "deadlock: nothing can end this wait");
    now_ = end;
    return false;
  }
  return true;
}

void SimScheduler::RunReady() {
  while (RunOne()) {
  }
}

void SimScheduler::Advance(Duration duration) {
  const TimePoint end = now_ + duration;
  RunReady();
  while (FireNext(end)) RunReady();
  now_ = end;
}

}  // namespace gradwire::sim
