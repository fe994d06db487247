#include "base/thread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradwire/wait_hook.h"

namespace gradwire {

struct ThreadPool::State : std::enable_shared_from_this<State> {
  explicit State(Options given) : options(std::move(given)) {
    options.max_running = std::max<size_t>(1, options.max_running);
  }

  const size_t& max_running = options.max_running;
  Options options;

  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable ended;
  std::deque<Task> queue;
  size_t threads = 0;   // alive
  size_t idle = 0;      // of them, waiting for work
  size_t awaiting = 0;  // of them, inside Await()
  bool stopping = false;
  bool abandoned = false;             // stopped, though tasks still run
  std::vector<std::thread> finished;  // to be joined
  std::unordered_map<std::thread::id, std::thread> alive;

  size_t running() const { return threads - idle - awaiting; }

  // Under the mutex: there is work, and a thread may take it.
  void Summon() {
    if (queue.empty() || running() >= max_running) return;
    if (idle > 0) {
      work.notify_one();
    } else {
      Spawn();
    }
  }

  void Spawn() {
    ++threads;
    std::thread thread([self = shared_from_this()] { self->Run(); });
    const auto id = thread.get_id();
    alive.emplace(id, std::move(thread));
  }

  void Run();
  bool NextTask(std::unique_lock<std::mutex>& lock, Task& task);
};

namespace {
thread_local const void* current_pool = nullptr;

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
}  // namespace

// False: the thread ends.
bool ThreadPool::State::NextTask(std::unique_lock<std::mutex>& lock, Task& task) {
  for (;;) {
    if (!queue.empty() && running() <= max_running) {
      task = std::move(queue.front());
      queue.pop_front();
      return true;
    }
    if (stopping && queue.empty()) return false;
    ++idle;
    // One idle thread stays; the others leave when nothing comes for a while.
    const bool may_leave = idle > 1;
    bool timed_out = false;
    if (may_leave) {
      timed_out = work.wait_for(lock, options.idle_before_exit) == std::cv_status::timeout;
    } else {
      work.wait(lock);
    }
    --idle;
    if (timed_out && queue.empty() && idle > 0) return false;
  }
}

void ThreadPool::State::Run() {
  current_pool = this;
  if (options.thread_start) options.thread_start();
  std::unique_lock lock(mutex);
  Task task;
  while (NextTask(lock, task)) {
    Summon();
    lock.unlock();
    task();
    task = nullptr;  // captured values end here, with no lock held
    lock.lock();
  }
  lock.unlock();
  if (options.thread_stop) options.thread_stop();
  lock.lock();
  --threads;
  if (auto self = alive.find(std::this_thread::get_id()); self != alive.end()) {  // else it was detached
    finished.push_back(std::move(self->second));
    alive.erase(self);
  }
  ended.notify_all();
}

ThreadPool::ThreadPool(Options options) : state_(std::make_shared<State>(std::move(options))) {}
ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  std::vector<std::thread> finished;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping && (state_->threads == 0 || state_->abandoned)) return;
    state_->queue.push_back(std::move(task));
    state_->Summon();
    finished.swap(state_->finished);
  }
  for (std::thread& thread : finished) thread.join();
}

bool ThreadPool::Await(Event& event, std::optional<Duration> limit) {
  if (event.is_set()) return true;
  if (current_pool != state_.get()) return WaitOutside(event, limit);
  {
    std::lock_guard lock(state_->mutex);
    ++state_->awaiting;
    state_->Summon();
  }
  const bool set = event.Wait(limit);
  {
    // More than max_running may run for a moment: who has waited goes on, new tasks wait until there is room.
    std::lock_guard lock(state_->mutex);
    --state_->awaiting;
  }
  return set;
}

size_t ThreadPool::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->queue.size();
}

size_t ThreadPool::active() const {
  std::lock_guard lock(state_->mutex);
  return state_->threads - state_->idle;
}

bool ThreadPool::Stop(std::optional<Duration> limit) {
  std::vector<std::thread> finished;
  std::deque<Task> dropped;
  bool all_ended = true;
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->work.notify_all();
    state_->Summon();
    const auto over = [this] { return state_->threads == 0 || state_->abandoned; };
    if (!limit) {
      state_->ended.wait(lock, over);
    } else if (!state_->ended.wait_for(lock, *limit, over)) {
      state_->abandoned = true;
      for (auto& [id, thread] : state_->alive) thread.detach();
      state_->alive.clear();
      dropped.swap(state_->queue);
    }
    finished.swap(state_->finished);
    all_ended = !state_->abandoned;
  }
  for (std::thread& thread : finished) thread.join();
  return all_ended;
}

}  // namespace gradwire
