#include "sim/sim_scheduler.h"

#include <algorithm>
#include <utility>

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

SimScheduler::Program*& SimScheduler::current() {
  thread_local Program* program = nullptr;
  return program;
}

SimScheduler::~SimScheduler() {
  for (Program& program : programs_) {
    program.abandoned = true;
    program.go.release();
    program.thread.join();
  }
}

bool SimScheduler::InTask() const { return current() == nullptr && depth_ > 0; }

void SimScheduler::Spawn(Task body) {
  Program& program = programs_.emplace_back();
  program.end = now_;  // due at once
  program.thread = std::thread([&program, body = std::move(body)]() mutable {
    current() = &program;
    program.go.acquire();
    if (!program.abandoned) body();
    program.over = true;
    program.back.release();
  });
}

bool SimScheduler::AwaitInProgram(Program& me, Event& event, std::optional<Duration> limit) {
  if (event.is_set()) return true;
  me.event = &event;
  me.end = limit ? now_ + *limit : TimePoint::max();
  if (limit) CallAt(me.end, [] {});  // time must come to it
  me.back.release();
  me.go.acquire();
  me.event = nullptr;
  if (me.abandoned) throw Error(ErrorCode::kInternal, "deadlock: nothing has ended this wait");
  return event.is_set();
}

void SimScheduler::Resume(Program& program) {
  program.go.release();
  program.back.acquire();
  if (!program.over) return;
  program.thread.join();
  programs_.remove_if([&](const Program& each) { return &each == &program; });
}

bool SimScheduler::RunOne() {
  std::vector<Program*> ready;
  for (Program& program : programs_) {
    if (program.end <= now_ || (program.event && program.event->is_set())) ready.push_back(&program);
  }
  if (runnable_.empty() && ready.empty()) return false;
  const size_t chosen = random_() % (runnable_.size() + ready.size());
  if (chosen >= runnable_.size()) {
    ++steps_;
    Resume(*ready[chosen - runnable_.size()]);
    return true;
  }
  std::swap(runnable_[chosen], runnable_.back());
  Task task = std::move(runnable_.back());
  runnable_.pop_back();
  ++steps_;
  ++depth_;
  task();
  task = nullptr;
  --depth_;
  return true;
}

bool SimScheduler::alone() const {
  return runnable_.empty() && std::none_of(programs_.begin(), programs_.end(), [this](const Program& program) {
    return program.end <= now_ || (program.event && program.event->is_set());
  });
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
  if (Program* const me = current()) return AwaitInProgram(*me, event, limit);
  const TimePoint end = limit ? now_ + *limit : TimePoint::max();
  while (!event.is_set()) {
    if (RunOne() || FireNext(end)) continue;
    if (!limit) throw Error(ErrorCode::kInternal, "deadlock: nothing can end this wait");
    now_ = end;
    return false;
  }
  return true;
}

void SimScheduler::DropTimers() {
  when_.clear();
  const auto dropped = std::exchange(timers_, {});
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
