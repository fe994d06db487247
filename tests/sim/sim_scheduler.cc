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
  programs_.splice(programs_.end(), idle_);
  for (Program& program : programs_) {
    program.abandoned = true;
    program.go.release();
    program.thread.join();
  }
}

bool SimScheduler::InTask() const {
  const Program* const program = current();
  return program ? program->is_apart : depth_ > 0;
}

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

void SimScheduler::PostApart(const SimNode* node, Task task) {
  const bool is_new = idle_.empty();
  if (is_new) idle_.emplace_back();
  programs_.splice(programs_.end(), idle_, idle_.begin());
  Program& program = programs_.back();
  program.is_apart = true;
  program.task = std::move(task);
  program.frozen_with = node;
  program.end = now_;  // due at once
  if (is_new) program.thread = std::thread([this, &program] { RunApart(program); });
}

void SimScheduler::RunApart(Program& me) {
  current() = &me;
  for (;;) {
    me.go.acquire();
    if (me.abandoned) break;
    me.frozen_with = nullptr;
    me.task();
    me.task = nullptr;
    me.back.release();
  }
  me.task = nullptr;
}

bool SimScheduler::AwaitInProgram(Program& me, const SimNode* node, Event& event, std::optional<Duration> limit) {
  if (event.is_set() && !(node && node->is_frozen())) return true;
  me.event = &event;
  me.frozen_with = node;
  me.end = limit ? now_ + *limit : TimePoint::max();
  if (limit) CallAt(me.end, [] {});  // time must come to it
  me.back.release();
  me.go.acquire();
  me.event = nullptr;
  me.frozen_with = nullptr;
  if (me.abandoned) throw Error(ErrorCode::kInternal, "deadlock: nothing has ended this wait");
  return event.is_set();
}

void SimScheduler::Resume(Program& program) {
  program.go.release();
  program.back.acquire();
  if (!program.over && !(program.is_apart && !program.task)) return;
  const auto is_it = [&](const Program& each) { return &each == &program; };
  const auto at = std::find_if(programs_.begin(), programs_.end(), is_it);
  if (program.is_apart) return idle_.splice(idle_.begin(), programs_, at);
  program.thread.join();
  programs_.erase(at);
}

bool SimScheduler::RunOne() {
  std::vector<Program*> ready;
  for (Program& program : programs_) {
    if (program.frozen_with && program.frozen_with->is_frozen()) continue;
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

bool SimScheduler::Await(Event& event, std::optional<Duration> limit) { return AwaitAs(nullptr, event, limit); }

bool SimScheduler::AwaitAs(const SimNode* node, Event& event, std::optional<Duration> limit) {
  if (Program* const me = current()) return AwaitInProgram(*me, node, event, limit);
  const TimePoint end = limit ? now_ + *limit : TimePoint::max();
  const auto is_frozen = [node] { return node && node->is_frozen(); };
  while (!event.is_set() || is_frozen()) {
    if (RunOne() || FireNext(is_frozen() ? TimePoint::max() : end)) continue;
    if (is_frozen()) throw Error(ErrorCode::kInternal, "deadlock: nothing can thaw who waits here");
    if (!limit) throw Error(ErrorCode::kInternal, "deadlock: nothing can end this wait");
    now_ = std::max(now_, end);
    return event.is_set();
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

void SimNode::Post(Task task) {
  scheduler_->Post([self = shared_from_this(), task = std::move(task)]() mutable { self->Run(std::move(task)); });
}

void SimNode::Run(Task task) {
  if (frozen_) {
    held_tasks_.push_back(std::move(task));
  } else {
    task();
  }
}

TimerId SimNode::CallAt(TimePoint when, Task task) {
  const TimerId id = ++last_timer_;
  const TimerId scheduled = scheduler_->CallAt(when, [self = shared_from_this(), id] { self->Fire(id); });
  timers_.emplace(id, Timer{std::move(task), scheduled});
  return id;
}

void SimNode::Fire(TimerId id) {
  if (frozen_) {
    held_timers_.push_back(id);
    return;
  }
  auto it = timers_.find(id);
  if (it == timers_.end()) return;  // cancelled while it was held
  Task task = std::move(it->second.task);
  timers_.erase(it);
  task();
}

void SimNode::Cancel(TimerId id) {
  auto it = timers_.find(id);
  if (it == timers_.end()) return;
  scheduler_->Cancel(it->second.scheduled);
  const Timer dropped = std::move(it->second);
  timers_.erase(it);
}

void SimNode::Thaw() {
  frozen_ = false;
  for (Task& task : std::exchange(held_tasks_, {})) Post(std::move(task));
  for (const TimerId id : std::exchange(held_timers_, {})) {
    auto it = timers_.find(id);
    if (it == timers_.end()) continue;
    it->second.scheduled = scheduler_->CallAt(Now(), [self = shared_from_this(), id] { self->Fire(id); });
  }
}

void SimNode::DropTimers() {
  for (const auto& [id, timer] : timers_) scheduler_->Cancel(timer.scheduled);
  held_timers_.clear();
  const auto dropped = std::exchange(timers_, {});
}

bool SimNode::Await(Event& event, std::optional<Duration> limit) { return scheduler_->AwaitAs(this, event, limit); }

}  // namespace gradwire::sim
