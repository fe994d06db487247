#include "base/thread_pool.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/stuck_watch.h"
#include "base/task_lines.h"
#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {

enum Kind : size_t { kOwn = 0, kHandler = 1 };

// A thread of a pool and what it does now; guarded by its pool's mutex.
struct PoolThread {
  std::thread handle;  // empty until the keeper has put it here
  pid_t id = 0;        // 0 before it has begun and once it ends
  bool ended = false;
  uint64_t task = 0;  // in the order of their beginning; 0: none, or inside Await()
  Kind kind = kOwn;   // of the task
  bool stuck = false;  // waits for something unseen: another thread runs in its place
};

thread_local void* current_pool = nullptr;  // its State, on a pool thread
thread_local PoolThread* current_thread = nullptr;

}  // namespace

struct ThreadPool::State : std::enable_shared_from_this<State> {
  explicit State(Options given) : options(std::move(given)), max_running(std::max<size_t>(1, options.max_running)) {}
  ~State() {
    // Not empty only when the pool ended on a thread of its own.
    for (std::thread& thread : finished) thread.detach();
    if (keeper.joinable()) keeper.detach();
  }

  const Options options;
  const size_t max_running;
  std::thread keeper;  // starts the others, so that no poster has to, and watches for those that are stuck

  // What runs of one kind: neither inside Await() nor stuck.
  struct Running {
    size_t count = 0;
    uint64_t begun = 0;  // so far
  };

  std::mutex mutex;  // guards:
  TaskLines lines;
  std::vector<Event*> idle;  // of threads without work, the last to become so at the end: it is woken first
  size_t starting = 0;       // threads that the keeper makes, and those inside thread_start
  size_t waking = 0;         // threads that were summoned and do not look at the lines yet
  size_t busy = 0;           // threads with a task
  std::array<Running, 2> running;
  size_t stuck = 0;    // threads marked so
  uint64_t begun = 0;  // tasks
  bool stopping = false;
  bool abandoned = false;  // stopped, though tasks still run
  std::list<PoolThread> alive;
  std::vector<std::thread> finished;  // to be joined
  std::condition_variable ended;
  Event* keeper_sleeps = nullptr;  // set: the keeper waits on it, and does not watch
  bool keeper_watches = false;     // it looks at the lines by itself, at the end of its period

  bool MayBegin(Kind kind) const;
  bool is_blocked(Kind kind) const { return waiting(kind) > 0 && !MayBegin(kind); }
  size_t waiting(Kind kind) const { return kind == kOwn ? lines.own() : lines.handlers(); }
  bool NeedsThread() const;
  bool NeedsWatch() const { return options.stuck_after.count() > 0 && (is_blocked(kOwn) || is_blocked(kHandler)); }
  bool is_over() const { return abandoned || (stopping && alive.empty() && lines.empty()); }

  template <class Add>
  void Queue(Add add);
  Event* SummonLocked();
  void Run(PoolThread& me);
  bool NextTask(std::unique_lock<std::mutex>& lock, Task& task);
  bool Sleep(std::unique_lock<std::mutex>& lock);
  void EndLocked(PoolThread& thread);
  void LetGoLocked(PoolThread& thread);

  void Keep();
  bool KeeperSleeps(std::unique_lock<std::mutex>& lock, std::optional<Duration> limit);
  bool StartThread(std::unique_lock<std::mutex>& lock);
  void Watch(std::unique_lock<std::mutex>& lock);
  bool AnyComputesNow(std::unique_lock<std::mutex>& lock) const;
  void MarkStuckLocked(Kind blocked);
};

namespace {

constexpr std::chrono::milliseconds kHookPause{100};
constexpr std::chrono::milliseconds kStartPause{100};  // after a thread could not be started

// On a thread of the program: its hook is called between slices of the wait.
bool WaitOutside(Event& event, std::optional<Duration> limit) {
  const WaitHook::Hook hook = WaitHook::current();
  if (!hook) return event.Wait(limit);
  const TimePoint end = limit ? std::chrono::steady_clock::now() + *limit : TimePoint::max();
  for (;;) {
    Duration slice = kHookPause;
    if (limit) slice = std::min(slice, end - std::chrono::steady_clock::now());
    if (event.Wait(slice)) return true;
    if (limit && std::chrono::steady_clock::now() >= end) return false;
    hook();
  }
}

void SetIf(Event* event) {
  if (event) event->Set();
}

}  // namespace

// Handlers and tasks of the library may fill the threads of their kind, and one thread more is there for the other.
bool ThreadPool::State::MayBegin(Kind kind) const {
  return running[kind].count < max_running && running[kOwn].count + running[kHandler].count < max_running + 1;
}

// A task could begin, and no thread is there or on its way that would look for one.
bool ThreadPool::State::NeedsThread() const {
  if (!idle.empty() || waking > 0 || starting > 0) return false;
  return (lines.own() > 0 && MayBegin(kOwn)) || (lines.handlers() > 0 && MayBegin(kHandler));
}

template <class Add>
void ThreadPool::State::Queue(Add add) {
  Event* next = nullptr;
  {
    std::lock_guard lock(mutex);
    if (is_over()) return;
    add(lines);
    next = SummonLocked();
  }
  SetIf(next);
}

// There is work: brings a thread unless one is on its way, which brings the next when it has found work. A burst of
// short tasks then wakes few threads. One that starts may take long: idle ones are woken meanwhile. Returns what to set
// after unlock, or nullptr.
Event* ThreadPool::State::SummonLocked() {
  if (lines.empty() || waking > 0) return nullptr;
  const bool may_begin = (lines.own() > 0 && MayBegin(kOwn)) || (lines.handlers() > 0 && MayBegin(kHandler));
  if (may_begin && !idle.empty()) {
    ++waking;
    Event* const event = idle.back();
    idle.pop_back();
    return event;
  }
  if (NeedsThread() || (NeedsWatch() && !keeper_watches)) return std::exchange(keeper_sleeps, nullptr);
  return nullptr;
}

// False: the thread ends.
bool ThreadPool::State::NextTask(std::unique_lock<std::mutex>& lock, Task& task) {
  PoolThread& me = *current_thread;
  for (;;) {
    for (const Kind kind : {kOwn, kHandler}) {
      if (waiting(kind) == 0 || !MayBegin(kind)) continue;
      task = kind == kOwn ? lines.TakeOwn() : lines.TakeHandler();
      ++busy;
      ++running[kind].count;
      ++running[kind].begun;
      me.kind = kind;
      me.task = ++begun;
      return true;
    }
    // What waits is taken by those that run, or the keeper finds that they stand.
    if (Event* const watch = SummonLocked()) {
      lock.unlock();
      watch->Set();
      lock.lock();
      continue;
    }
    if (stopping || !Sleep(lock)) return false;
    --waking;
  }
}

// False: nothing came for a while, and another thread is idle too. One stays.
bool ThreadPool::State::Sleep(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    Event summons;
    const bool stays = idle.empty();
    idle.push_back(&summons);
    lock.unlock();
    const bool set = stays ? summons.Wait() : summons.Wait(options.idle_before_exit);
    lock.lock();
    if (set) return true;
    const auto me = std::find(idle.begin(), idle.end(), &summons);
    if (me == idle.end()) {
      summons.Wait();  // summoned just now: the setter is about to
      return true;
    }
    idle.erase(me);
    if (!idle.empty()) return false;
  }
}

// Its task does not count as one that runs any more: it has ended, or waits.
void ThreadPool::State::LetGoLocked(PoolThread& thread) {
  thread.task = 0;
  if (std::exchange(thread.stuck, false)) {
    --stuck;
  } else {
    --running[thread.kind].count;
  }
}

void ThreadPool::State::Run(PoolThread& me) {
  pthread_setname_np(pthread_self(), "gradwire-pool");
  current_pool = this;
  current_thread = &me;
  if (options.thread_start) options.thread_start();
  std::unique_lock lock(mutex);
  me.id = gettid();
  --starting;
  Task task;
  while (NextTask(lock, task)) {
    Event* const next = SummonLocked();
    lock.unlock();
    SetIf(next);
    task();
    task = nullptr;  // captured values end here, with no lock held
    lock.lock();
    --busy;
    LetGoLocked(me);
  }
  me.id = 0;
  lock.unlock();
  if (options.thread_stop) options.thread_stop();
  lock.lock();
  // Each thread joins those that ended before it, so that at most one waits to be joined.
  std::vector<std::thread> before = std::exchange(finished, {});
  me.ended = true;
  EndLocked(me);
  Event* const next = stopping ? std::exchange(keeper_sleeps, nullptr) : nullptr;
  ended.notify_all();
  lock.unlock();
  SetIf(next);
  for (std::thread& thread : before) thread.join();
}

// Moves a thread that has ended to those that are to be joined, once it is known by its handle.
void ThreadPool::State::EndLocked(PoolThread& thread) {
  if (!thread.ended || !thread.handle.joinable()) return;
  finished.push_back(std::move(thread.handle));
  alive.remove_if([&](const PoolThread& each) { return &each == &thread; });
}

// The keeper's thread.
void ThreadPool::State::Keep() {
  pthread_setname_np(pthread_self(), "gradwire-keeper");
  std::unique_lock lock(mutex);
  while (!is_over()) {
    if (NeedsThread()) {
      if (!StartThread(lock)) KeeperSleeps(lock, kStartPause);
    } else if (NeedsWatch()) {
      Watch(lock);
    } else {
      KeeperSleeps(lock, std::nullopt);
    }
  }
}

// False: `limit` has passed.
bool ThreadPool::State::KeeperSleeps(std::unique_lock<std::mutex>& lock, std::optional<Duration> limit) {
  Event woken;
  keeper_sleeps = &woken;
  lock.unlock();
  bool set = woken.Wait(limit);
  lock.lock();
  if (!set && std::exchange(keeper_sleeps, nullptr) == nullptr) {
    set = woken.Wait();  // taken just now: the setter is about to
  }
  return set;
}

// The system may take long: not under the mutex, which posters take.
bool ThreadPool::State::StartThread(std::unique_lock<std::mutex>& lock) {
  PoolThread& made = alive.emplace_back();
  ++starting;
  lock.unlock();
  std::thread handle;
  std::string failure;
  try {
    handle = std::thread([self = shared_from_this(), &made] { self->Run(made); });
  } catch (const std::system_error& error) {
    failure = error.what();
  }
  if (!failure.empty()) Log(LogLevel::kError, "no further thread for the pool: " + failure);
  lock.lock();
  if (!failure.empty()) {
    --starting;
    alive.remove_if([&](const PoolThread& each) { return &each == &made; });
    ended.notify_all();
    return false;
  }
  if (abandoned) {
    handle.detach();
    return true;
  }
  made.handle = std::move(handle);
  EndLocked(made);
  ended.notify_all();
  return true;
}

// Work waits that may not begin: looks again after each period, until that is over.
void ThreadPool::State::Watch(std::unique_lock<std::mutex>& lock) {
  std::array<StuckWatch, 2> watches{StuckWatch(max_running, options.max_stuck),
                                    StuckWatch(max_running, options.max_stuck)};
  for (const Kind kind : {kOwn, kHandler}) watches[kind].Begin(running[kind].begun);
  std::array<bool, 2> was_blocked{is_blocked(kOwn), is_blocked(kHandler)};
  keeper_watches = true;
  bool computes = AnyComputesNow(lock);
  while (NeedsWatch() && !NeedsThread() && !is_over()) {
    if (KeeperSleeps(lock, options.stuck_after)) break;
    const bool computed = std::exchange(computes, AnyComputesNow(lock)) || computes;
    for (const Kind kind : {kOwn, kHandler}) {
      if (!std::exchange(was_blocked[kind], is_blocked(kind))) {
        watches[kind].Begin(running[kind].begun);
      } else if (was_blocked[kind] && watches[kind].Look(running[kind].begun, computed, stuck)) {
        MarkStuckLocked(kind);
      }
    }
    Event* const next = SummonLocked();  // of an idle thread
    lock.unlock();
    SetIf(next);
    lock.lock();
  }
  keeper_watches = false;
}

bool ThreadPool::State::AnyComputesNow(std::unique_lock<std::mutex>& lock) const {
  std::vector<pid_t> threads;
  for (const PoolThread& thread : alive) {
    if (thread.id != 0) threads.push_back(thread.id);
  }
  lock.unlock();
  const bool computes = AnyComputes(threads);
  lock.lock();
  return computes;
}

// The longest of those that keep the line from going on.
void ThreadPool::State::MarkStuckLocked(Kind blocked) {
  const bool by_its_own_kind = running[blocked].count >= max_running;
  PoolThread* oldest = nullptr;
  for (PoolThread& thread : alive) {
    if (thread.task == 0 || thread.stuck || (by_its_own_kind && thread.kind != blocked)) continue;
    if (!oldest || thread.task < oldest->task) oldest = &thread;
  }
  if (!oldest) return;
  oldest->stuck = true;
  ++stuck;
  --running[oldest->kind].count;
}

ThreadPool::ThreadPool(Options options) : state_(std::make_shared<State>(std::move(options))) {
  state_->keeper = std::thread([state = state_] { state->Keep(); });
}
ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  state_->Queue([&](TaskLines& lines) { lines.Add(std::move(task)); });
}

void ThreadPool::PostHandler(uint64_t peer, Task task) {
  state_->Queue([&](TaskLines& lines) { lines.AddHandler(peer, std::move(task)); });
}

bool ThreadPool::Await(Event& event, std::optional<Duration> limit) {
  if (event.is_set()) return true;
  auto* const pool =
      static_cast<State*>(current_pool);  // not always this one: a handler of one worker may wait for another worker
  if (!pool) return WaitOutside(event, limit);
  PoolThread& me = *current_thread;
  Event* next = nullptr;
  uint64_t awaited = 0;
  {
    std::lock_guard lock(pool->mutex);
    awaited = me.task;
    pool->LetGoLocked(me);
    next = pool->SummonLocked();
  }
  SetIf(next);
  const bool set = event.Wait(limit);
  // More than max_running may run for a moment: who has waited goes on at once, as it may hold what others wait for;
  // new tasks wait until there is room.
  std::lock_guard lock(pool->mutex);
  me.task = awaited;
  ++pool->running[me.kind].count;
  return set;
}

bool ThreadPool::InTask() const { return current_pool != nullptr; }
bool ThreadPool::OwnsThisThread() const { return current_pool == state_.get(); }

size_t ThreadPool::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->lines.size();
}

size_t ThreadPool::active() const {
  std::lock_guard lock(state_->mutex);
  return state_->busy;
}

bool ThreadPool::Stop(std::optional<Duration> limit) {
  std::vector<Event*> sleeping;
  std::vector<std::thread> finished;
  TaskLines dropped;
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  sleeping.swap(state_->idle);
  state_->waking += sleeping.size();
  if (Event* const keeper = std::exchange(state_->keeper_sleeps, nullptr)) sleeping.push_back(keeper);
  lock.unlock();
  for (Event* const event : sleeping) event->Set();
  // A task may hold the last handle of its pool. Its thread cannot wait for itself; the threads end on their own.
  if (current_pool == state_.get()) return false;
  lock.lock();
  const auto over = [this] { return state_->is_over(); };
  if (!limit) {
    state_->ended.wait(lock, over);
  } else if (!state_->ended.wait_for(lock, *limit, over)) {
    state_->abandoned = true;
    // They stay in the list, which they look at: only a thread that the keeper makes just now has no handle yet.
    for (PoolThread& thread : state_->alive) {
      if (thread.handle.joinable()) thread.handle.detach();
    }
    std::swap(dropped, state_->lines);
  }
  finished.swap(state_->finished);
  const bool all_ended = !state_->abandoned;
  Event* const keeper = std::exchange(state_->keeper_sleeps, nullptr);
  std::thread keeper_thread = std::move(state_->keeper);
  lock.unlock();
  SetIf(keeper);
  if (keeper_thread.joinable()) keeper_thread.join();
  for (std::thread& thread : finished) thread.join();
  return all_ended;
}

}  // namespace gradwire
