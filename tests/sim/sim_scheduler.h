// SimScheduler: clock and executor of a simulation in one thread. A seed chooses what runs next; time jumps to the next
// timer when nothing else can run. The same seed gives the same run. A SimNode is the view of one worker, which can be
// frozen.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"

namespace gradwire::sim {

class SimNode;

class SimScheduler final : public Clock, public Executor {
 public:
  explicit SimScheduler(uint64_t seed) : random_(seed) {}
  ~SimScheduler() override;

  TimePoint Now() const override { return now_; }
  // What has a time to come, and whatever it holds, goes: it may hold this scheduler.
  void DropTimers();
  TimerId CallAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;
  void Post(Task task) override { runnable_.push_back(std::move(task)); }
  void PostHandler(uint64_t, Task task) override { Post(std::move(task)); }  // the seed chooses, whoever's it is
  // Runs other tasks until the event is set. Throws Error(kInternal) when nothing can set it any more.
  bool Await(Event& event, std::optional<Duration> limit = std::nullopt) override;

  bool InTask() const override;
  bool OwnsThisThread() const override { return false; }  // its end waits for no task
  // Runs `body` as a thread of a program does: while it waits, others go on. One runs at a time.
  void Spawn(Task body);
  // Runs it soon, unless `node` is frozen, as a task that may wait for long: others run on top of any other task that
  // waits, and it goes on only when they are over.
  void PostApart(const SimNode* node, Task task);

  // Runs everything that can run now; timers are left alone.
  void RunReady();
  // Lets time pass: timers up to then fire.
  void Advance(Duration duration);
  size_t steps() const { return steps_; }
  // For a task: whether nothing but it can run now.
  bool alone() const;

 private:
  friend class SimNode;
  // The standard semaphores spin by giving the processor away first, which costs a whole slice of time where others
  // want it.
  class Turn {
   public:
    void acquire() {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [this] { return is_mine_; });
      is_mine_ = false;
    }
    void release() {
      std::lock_guard lock(mutex_);
      is_mine_ = true;
      given_.notify_one();
    }

   private:
    std::mutex mutex_;
    std::condition_variable given_;
    bool is_mine_ = false;
  };
  // A thread of its own only to have a stack: it and the scheduler hand the turn to each other.
  struct Program {
    std::thread thread;
    Turn go, back;
    Event* event = nullptr;                // waited for
    const SimNode* frozen_with = nullptr;  // the node by which it waits; may be nullptr
    TimePoint end{};
    bool over = false;
    bool abandoned = false;
    Task task;              // of PostApart(), to run
    bool is_apart = false;  // its thread runs one after the other
  };
  static Program*& current();

  bool AwaitAs(const SimNode* node, Event& event, std::optional<Duration> limit);
  bool AwaitInProgram(Program& me, const SimNode* node, Event& event, std::optional<Duration> limit);
  void Resume(Program& program);
  void RunApart(Program& me);
  bool RunOne();
  bool FireNext(TimePoint until);

  std::mt19937_64 random_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<Task> runnable_;
  std::list<Program> programs_;
  std::list<Program> idle_;  // for PostApart()
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::map<TimerId, TimePoint> when_;
  TimerId last_timer_ = 0;
  size_t steps_ = 0;
  int depth_ = 0;  // tasks that run inside one another
};

// Clock and executor of one worker. While it is frozen, as a stopped process is, none of its tasks and timers runs and
// none of its waits ends; then they do, late. May outlive the simulation's use of it: what is posted holds it.
class SimNode final : public Clock, public Executor, public std::enable_shared_from_this<SimNode> {
 public:
  explicit SimNode(std::shared_ptr<SimScheduler> scheduler) : scheduler_(std::move(scheduler)) {}

  void Freeze() { frozen_ = true; }
  void Thaw();
  bool is_frozen() const { return frozen_; }
  // What has a time to come, and whatever it holds, goes.
  void DropTimers();

  TimePoint Now() const override { return scheduler_->Now(); }
  TimerId CallAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;

  void Post(Task task) override;
  void PostHandler(uint64_t, Task task) override { scheduler_->PostApart(this, std::move(task)); }
  bool Await(Event& event, std::optional<Duration> limit = std::nullopt) override;
  bool InTask() const override { return scheduler_->InTask(); }
  bool OwnsThisThread() const override { return false; }

 private:
  struct Timer {
    Task task;
    TimerId scheduled;
  };
  void Run(Task task);
  void Fire(TimerId id);

  const std::shared_ptr<SimScheduler> scheduler_;
  bool frozen_ = false;
  std::vector<Task> held_tasks_;
  std::map<TimerId, Timer> timers_;   // that have not run
  std::vector<TimerId> held_timers_;  // whose time came while frozen
  TimerId last_timer_ = 0;
};

}  // namespace gradwire::sim
