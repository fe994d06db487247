#include "base/loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "gradwire/error.h"

namespace gradwire {

namespace {

// epoll_pwait2, or what is there of it: kernels before 5.11 and some sandboxes have none.
int WaitForEvents(int epoll, epoll_event* events, int size, const timespec* limit) {
  static std::atomic<bool> is_missing{false};
  if (!is_missing.load(std::memory_order_relaxed)) {
    const int count = epoll_pwait2(epoll, events, size, limit, nullptr);
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    is_missing.store(true, std::memory_order_relaxed);
  }
  int64_t left_ms = -1;
  if (limit) left_ms = limit->tv_sec * 1000 + (limit->tv_nsec + 999'999) / 1'000'000;
  return epoll_wait(epoll, events, size, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
}

}  // namespace

struct Loop::State {
  int epoll = -1;
  int wake = -1;
  std::thread thread;
  std::atomic<std::thread::id> id{};  // of `thread`, which the end of the loop changes
  std::atomic<bool> stopping{false};

  std::mutex mutex;
  std::vector<Task> posted;
  std::map<std::pair<TimePoint, TimerId>, Task> timers;
  std::unordered_map<TimerId, TimePoint> when;
  TimerId last_timer = 0;
  TimePoint sleeping_until = TimePoint::min();  // min: awake, it will look at the timers itself
  std::unordered_map<int, std::shared_ptr<ReadyCallback>> watched;

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof one);
  }
  void Run();
  int Sleep(std::array<epoll_event, 64>& events);
  void RunDue();
  void RunPosted();
};

int Loop::State::Sleep(std::array<epoll_event, 64>& events) {
  timespec timeout{};
  const timespec* limit = nullptr;
  {
    std::lock_guard lock(mutex);
    if (!posted.empty() || stopping) {
      limit = &timeout;
    } else if (!timers.empty()) {
      sleeping_until = timers.begin()->first.first;
      const auto left =
          std::chrono::duration_cast<std::chrono::nanoseconds>(sleeping_until - std::chrono::steady_clock::now());
      if (left.count() > 0) timeout = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      limit = &timeout;
    } else {
      sleeping_until = TimePoint::max();
    }
  }
  const int count = WaitForEvents(epoll, events.data(), static_cast<int>(events.size()), limit);
  std::lock_guard lock(mutex);
  sleeping_until = TimePoint::min();
  return count;
}

void Loop::State::RunDue() {
  for (;;) {
    Task task;
    {
      std::lock_guard lock(mutex);
      if (timers.empty() || timers.begin()->first.first > std::chrono::steady_clock::now()) return;
      auto first = timers.begin();
      when.erase(first->first.second);
      task = std::move(first->second);
      timers.erase(first);
    }
    task();
  }
}

void Loop::State::RunPosted() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex);
    tasks.swap(posted);
  }
  for (Task& task : tasks) task();
}

void Loop::State::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = Sleep(events);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake) {
        uint64_t ignored;
        [[maybe_unused]] const ssize_t got = read(wake, &ignored, sizeof ignored);
        continue;
      }
      std::shared_ptr<ReadyCallback> ready;
      {
        std::lock_guard lock(mutex);
        auto it = watched.find(fd);
        if (it != watched.end()) ready = it->second;
      }
      if (ready) (*ready)(events[i].events);
    }
    RunDue();
    RunPosted();
    std::lock_guard lock(mutex);
    if (stopping && posted.empty()) return;
  }
}

Loop::Loop(std::function<void()> thread_start) : state_(std::make_unique<State>()) {
  state_->epoll = epoll_create1(EPOLL_CLOEXEC);
  state_->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (state_->epoll < 0 || state_->wake < 0) {
    const std::string cause = std::strerror(errno);
    if (state_->epoll >= 0) close(state_->epoll);
    throw Error(ErrorCode::kInternal, "a worker's loop cannot begin: " + cause);
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = state_->wake}};
  epoll_ctl(state_->epoll, EPOLL_CTL_ADD, state_->wake, &event);
  StartLog();  // its thread is not to be started under a role
  state_->thread = std::thread([state = state_.get(), thread_start = std::move(thread_start)] {
    pthread_setname_np(pthread_self(), "gradwire-io");
    state->id = std::this_thread::get_id();
    if (thread_start) thread_start();
    state->Run();
  });
}

Loop::~Loop() {
  Stop();
  close(state_->wake);
  close(state_->epoll);
}

TimePoint Loop::Now() const { return std::chrono::steady_clock::now(); }

TimerId Loop::CallAt(TimePoint when, Task task) {
  bool wake = false;
  TimerId id = 0;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping) return 0;  // nobody would let go of it
    id = ++state_->last_timer;
    state_->timers.emplace(std::pair{when, id}, std::move(task));
    state_->when.emplace(id, when);
    // A sleep that ends earlier looks at the timers anyway: most timers are time-outs that never fire.
    if (when < state_->sleeping_until) {
      state_->sleeping_until = when;
      wake = true;
    }
  }
  if (wake) state_->Wake();
  return id;
}

void Loop::Cancel(TimerId id) {
  Task dropped;  // declared first: destroyed after unlock
  std::lock_guard lock(state_->mutex);
  auto it = state_->when.find(id);
  if (it == state_->when.end()) return;
  auto timer = state_->timers.find({it->second, id});
  dropped = std::move(timer->second);
  state_->timers.erase(timer);
  state_->when.erase(it);
}

void Loop::Watch(int fd, uint32_t events, ReadyCallback ready) {
  {
    std::lock_guard lock(state_->mutex);
    state_->watched[fd] = std::make_shared<ReadyCallback>(std::move(ready));
  }
  epoll_event event{.events = events, .data = {.fd = fd}};
  epoll_ctl(state_->epoll, EPOLL_CTL_ADD, fd, &event);
}

void Loop::Change(int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  epoll_ctl(state_->epoll, EPOLL_CTL_MOD, fd, &event);
}

void Loop::Unwatch(int fd) {
  std::shared_ptr<ReadyCallback> dropped;
  epoll_ctl(state_->epoll, EPOLL_CTL_DEL, fd, nullptr);
  std::lock_guard lock(state_->mutex);
  auto it = state_->watched.find(fd);
  if (it == state_->watched.end()) return;
  dropped = std::move(it->second);
  state_->watched.erase(it);
}

void Loop::Post(Task task) {
  bool asleep = false;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->posted.push_back(std::move(task));
    asleep = std::exchange(state_->sleeping_until, TimePoint::min()) != TimePoint::min();
  }
  if (asleep) state_->Wake();
}

bool Loop::InLoopThread() const { return std::this_thread::get_id() == state_->id.load(); }

void Loop::Stop() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->Wake();
  if (state_->thread.joinable()) state_->thread.join();
  // They may hold what holds this loop. Their end may run anybody's code: not under the lock.
  decltype(state_->timers) dropped;
  std::lock_guard lock(state_->mutex);
  dropped.swap(state_->timers);
  state_->when.clear();
}

}  // namespace gradwire
