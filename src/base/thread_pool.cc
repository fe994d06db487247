#include "base/thread_pool.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/task_lines.h"
#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {

// What a thread does now; guarded by its pool's mutex.
struct Doing {
  const pthread_t thread = pthread_self();
  uint64_t task = 0;   // in the order of their beginning; 0: none
  bool stuck = false;  // waits for something unseen: another thread runs in its place
};

thread_local void* current_pool = nullptr;  // its State, on a pool thread
thread_local Doing* current_doing = nullptr;

// Of a thread that lives.
Duration CpuTime(pthread_t thread) {
  clockid_t clock;
  timespec used{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0) return Duration(0);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

struct ThreadPool::State : std::enable_shared_from_this<State> {
  explicit State(Options given) : options(std::move(given)), max_running(std::max<size_t>(1, options.max_running)) {}
  ~State() {
    for (std::thread& thread : finished) thread.detach();  // only when the pool ended on a thread of its own
  }

  const Options options;
  const size_t max_running;

  std::mutex mutex;  // guards:
  TaskLines queue;
  std::vector<Event*> idle;  // of threads without work, the last to become so at the end: it is woken first
  size_t threads = 0;        // that take tasks: starting, idle, waking, busy or awaiting
  size_t starting = 0;       // of them, new and inside thread_start
  size_t waking = 0;         // of them, summoned and not yet looking at the queue
  size_t busy = 0;           // of them, with a task
  size_t awaiting = 0;       // of those, inside Await()
  bool stopping = false;
  bool abandoned = false;  // stopped, though tasks still run
  std::unordered_map<std::thread::id, std::thread> alive;
  std::vector<std::thread> finished;  // to be joined
  std::condition_variable ended;
  std::vector<Doing*> doings;  // of all threads
  size_t stuck = 0;            // of them, marked so
  uint64_t begun = 0;          // tasks
  bool watching = false;       // a timer is armed, for which:
  uint64_t begun_before = 0;   // `begun` when it was
  Duration cpu_before{0};      // and the time that the threads had used

  bool full() const { return running() >= max_running + stuck; }
  size_t running() const { return threads - idle.size() - awaiting; }

  template <class Add>
  void Queue(Add add);
  Event* SummonLocked();
  void SpawnLocked();
  void Run();
  void WatchLocked();
  void Look();
  void MarkStuckLocked();
  void GoOnLocked(Doing& doing);
  Duration CpuTimeLocked() const;
  bool NextTask(std::unique_lock<std::mutex>& lock, Task& task);
  bool Sleep(std::unique_lock<std::mutex>& lock);
};

namespace {

constexpr std::chrono::milliseconds kHookPause{100};

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

template <class Add>
void ThreadPool::State::Queue(Add add) {
  Event* next = nullptr;
  {
    std::lock_guard lock(mutex);
    if (stopping && (alive.empty() || abandoned)) return;
    add(queue);
    next = SummonLocked();
  }
  SetIf(next);
}

// There is work: brings a thread unless one is on its way, which brings the next when it has found work. A burst of
// short tasks then wakes few threads. One that starts may take long (the GIL): idle ones are woken meanwhile. Returns
// what to set after unlock, or nullptr.
Event* ThreadPool::State::SummonLocked() {
  if (queue.empty() || waking > 0) return nullptr;
  if (full()) {
    WatchLocked();
    return nullptr;
  }
  if (idle.empty()) {
    if (starting == 0) SpawnLocked();
    return nullptr;
  }
  ++waking;
  Event* const event = idle.back();
  idle.pop_back();
  return event;
}

void ThreadPool::State::SpawnLocked() {
  try {
    std::thread thread([self = shared_from_this()] { self->Run(); });
    ++starting;
    ++threads;
    const auto id = thread.get_id();
    alive.emplace(id, std::move(thread));
  } catch (const std::system_error& error) {
    Log(LogLevel::kError, "no further thread for the pool: " + std::string(error.what()));
  }
}

// The pool is full and work waits: looks again after a while.
void ThreadPool::State::WatchLocked() {
  if (watching || !options.clock || stopping) return;
  watching = true;
  begun_before = begun;
  cpu_before = CpuTimeLocked();
  options.clock->CallAt(options.clock->Now() + options.stuck_after, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Look();
  });
}

void ThreadPool::State::Look() {
  Event* next = nullptr;
  {
    std::lock_guard lock(mutex);
    watching = false;
    if (queue.empty() || !full()) return;
    // A thread that waits in a loop, or for the GIL, uses a little.
    const bool rested = CpuTimeLocked() - cpu_before < Duration(options.stuck_after) / 50;
    if (rested && begun == begun_before) MarkStuckLocked();
    next = SummonLocked();  // or watches on
  }
  SetIf(next);
}

// The longest of those that stand.
void ThreadPool::State::MarkStuckLocked() {
  if (stuck >= options.max_stuck) return;
  Doing* oldest = nullptr;
  for (Doing* const doing : doings) {
    if (doing->task == 0 || doing->stuck) continue;
    if (!oldest || doing->task < oldest->task) oldest = doing;
  }
  if (!oldest) return;
  oldest->stuck = true;
  ++stuck;
}

void ThreadPool::State::GoOnLocked(Doing& doing) {
  if (std::exchange(doing.stuck, false)) --stuck;
}

Duration ThreadPool::State::CpuTimeLocked() const {
  Duration sum{0};
  for (const Doing* const doing : doings) sum += CpuTime(doing->thread);
  return sum;
}

// False: the thread ends.
bool ThreadPool::State::NextTask(std::unique_lock<std::mutex>& lock, Task& task) {
  for (;;) {
    if (!queue.empty() && running() <= max_running + stuck) {
      task = queue.own() > 0 ? queue.TakeOwn() : queue.TakeHandler();
      ++busy;
      current_doing->task = ++begun;
      return true;
    }
    // With work left, those that run take it, or the watch finds that they stand.
    if (!queue.empty()) WatchLocked();
    if (stopping || !Sleep(lock)) {
      --threads;
      return false;
    }
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

void ThreadPool::State::Run() {
  pthread_setname_np(pthread_self(), "gradwire-pool");
  current_pool = this;
  if (options.thread_start) options.thread_start();
  Doing doing;
  current_doing = &doing;
  std::unique_lock lock(mutex);
  doings.push_back(&doing);
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
    doing.task = 0;
    GoOnLocked(doing);
  }
  std::erase(doings, &doing);
  lock.unlock();
  if (options.thread_stop) options.thread_stop();
  lock.lock();
  // Each thread joins those that ended before it, so that at most one waits to be joined.
  std::vector<std::thread> before = std::exchange(finished, {});
  if (auto self = alive.find(std::this_thread::get_id()); self != alive.end()) {  // else it was detached
    finished.push_back(std::move(self->second));
    alive.erase(self);
  }
  ended.notify_all();
  lock.unlock();
  for (std::thread& thread : before) thread.join();
}

ThreadPool::ThreadPool(Options options) : state_(std::make_shared<State>(std::move(options))) {}
ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  state_->Queue([&](TaskLines& queue) { queue.Add(std::move(task)); });
}

void ThreadPool::PostHandler(uint64_t peer, Task task) {
  state_->Queue([&](TaskLines& queue) { queue.AddHandler(peer, std::move(task)); });
}

bool ThreadPool::Await(Event& event, std::optional<Duration> limit) {
  if (event.is_set()) return true;
  auto* const pool =
      static_cast<State*>(current_pool);  // not always this one: a handler of one worker may wait for another worker
  if (!pool) return WaitOutside(event, limit);
  Event* next = nullptr;
  uint64_t awaited = 0;
  {
    std::lock_guard lock(pool->mutex);
    ++pool->awaiting;
    awaited = std::exchange(current_doing->task, 0);
    pool->GoOnLocked(*current_doing);
    next = pool->SummonLocked();
  }
  SetIf(next);
  const bool set = event.Wait(limit);
  // More than max_running may run for a moment: who has waited goes on at once, as it may hold what others wait for;
  // new tasks wait until there is room.
  std::lock_guard lock(pool->mutex);
  --pool->awaiting;
  current_doing->task = awaited;
  return set;
}

bool ThreadPool::InTask() const { return current_pool != nullptr; }
bool ThreadPool::OwnsThisThread() const { return current_pool == state_.get(); }

size_t ThreadPool::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->queue.size();
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
  state_->SummonLocked();
  lock.unlock();
  for (Event* const event : sleeping) event->Set();
  // A task may hold the last handle of its pool. Its thread cannot wait for itself; the threads end on their own.
  if (current_pool == state_.get()) return false;
  lock.lock();
  const auto over = [this] { return (state_->alive.empty() && state_->queue.empty()) || state_->abandoned; };
  if (!limit) {
    state_->ended.wait(lock, over);
  } else if (!state_->ended.wait_for(lock, *limit, over)) {
    state_->abandoned = true;
    for (auto& [id, thread] : state_->alive) thread.detach();
    state_->alive.clear();
    std::swap(dropped, state_->queue);
  }
  finished.swap(state_->finished);
  const bool all_ended = !state_->abandoned;
  lock.unlock();
  for (std::thread& thread : finished) thread.join();
  return all_ended;
}

}  // namespace gradwire
