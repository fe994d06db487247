#include "gradwire/future.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/event.h"
#include "base/executor.h"
#include "base/log.h"
#include "gradwire/call.h"
#include "gradwire/surroundings.h"

namespace gradwire::detail {
namespace {

using Callbacks = std::deque<FutureState::Callback>;

// A callback may hold the next future of a long chain, and that one the next: they are destroyed one after another
// instead of one inside another.
void Destroy(Callbacks callbacks) {
  thread_local Callbacks* waiting = nullptr;
  if (callbacks.empty()) return;
  if (waiting) {
    for (auto& callback : callbacks) waiting->push_back(std::move(callback));
    return;
  }
  waiting = &callbacks;
  while (!callbacks.empty()) {
    const FutureState::Callback first = std::move(callbacks.front());
    callbacks.pop_front();
  }
  waiting = nullptr;
}

}  // namespace

struct FutureState::State {
  explicit State(std::shared_ptr<Executor> executor) : executor(std::move(executor)) {}
  ~State() { Destroy(std::move(callbacks)); }

  const std::shared_ptr<Executor> executor;
  Event event;

  std::mutex mutex;
  // guarded by mutex until event is set, constant afterwards
  std::shared_ptr<void> value;
  std::optional<Failure> failure;
  // guarded by mutex
  bool completed = false;
  bool cancelled = false;  // Cancel() has been here: the first one ends the call
  CallHandle call;
  bool draining = false;  // one task runs callbacks, in order
  Callbacks callbacks;

  using Future = std::shared_ptr<FutureState>;  // the one of this state, for its callbacks

  bool Finish(Future future, std::shared_ptr<void> new_value, std::optional<Failure> new_failure) {
    {
      std::lock_guard lock(mutex);
      if (completed) return false;
      completed = true;
      value = std::move(new_value);
      failure = std::move(new_failure);
    }
    event.Set();
    Drain(std::move(future));
    return true;
  }

  void Drain(Future future) {
    {
      std::lock_guard lock(mutex);
      if (draining || callbacks.empty()) return;
      draining = true;
    }
    if (!executor) return RunCallbacks(future);
    executor->Post(Run(std::move(future)));
  }

  // The task that runs them. An executor that has ended drops it, and with it the callbacks.
  struct Run {
    explicit Run(Future future) : future(std::move(future)) {}
    Run(Run&&) = default;
    ~Run() {
      if (future) future->state_->DropCallbacks();
    }
    void operator()() {
      const Future mine = std::move(future);
      mine->state_->RunCallbacks(mine);
    }
    Future future;
  };

  void DropCallbacks() {
    Callbacks dropped;
    {
      std::lock_guard lock(mutex);
      draining = false;
      dropped.swap(callbacks);
    }
    Destroy(std::move(dropped));
  }

  void RunCallbacks(const Future& future) {
    const Surroundings::Scope none{Surroundings()};
    for (;;) {
      Callback next;
      {
        std::lock_guard lock(mutex);
        if (callbacks.empty()) {
          draining = false;
          return;
        }
        next = std::move(callbacks.front());
        callbacks.pop_front();
      }
      try {
        next(future);
      } catch (...) {
        Log(LogLevel::kError, "a callback of a future threw: " + CaughtFailure().text);
      }
    }
  }
};

FutureState::FutureState(std::shared_ptr<Executor> executor) : state_(std::make_shared<State>(std::move(executor))) {}
FutureState::FutureState(std::shared_ptr<State> state) : state_(std::move(state)) {}

FutureState::~FutureState() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->completed || state_->callbacks.empty()) return;
  }
  // For its callbacks, which outlive it.
  const std::shared_ptr<FutureState> heir(new FutureState(state_));
  heir->Fail({.code = ErrorCode::kInvalid, .text = "a future was dropped by all who could have completed it"});
}

Promise::~Promise() {
  if (!state_) return;
  state_->Fail({.code = ErrorCode::kDisconnected, .text = "the worker of a future has ended before it was done"});
}

bool FutureState::Complete(std::shared_ptr<void> value) {
  return state_->Finish(weak_from_this().lock(), std::move(value), std::nullopt);
}
bool FutureState::Fail(Failure failure) { return state_->Finish(weak_from_this().lock(), nullptr, std::move(failure)); }

void FutureState::SetCall(CallHandle call) {
  std::lock_guard lock(state_->mutex);
  state_->call = std::move(call);
}

bool FutureState::Cancel() {
  CallHandle call;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->completed || std::exchange(state_->cancelled, true)) return false;
    call = state_->call;
  }
  // The completion of a call that this ends may come before Fail(): with kCancelled too.
  const bool ended_call = call.Cancel();
  return Fail({.code = ErrorCode::kCancelled, .text = "the call was cancelled by its caller"}) || ended_call;
}
bool FutureState::done() const { return state_->event.is_set(); }
const std::shared_ptr<Executor>& FutureState::executor() const { return state_->executor; }

const std::shared_ptr<void>& FutureState::Wait(std::optional<std::chrono::milliseconds> limit) const {
  if (limit) limit = std::min(*limit, std::chrono::milliseconds(kLongestLimit));
  Event& event = state_->event;
  const bool done = event.is_set() || (state_->executor ? state_->executor->Await(event, limit) : event.Wait(limit));
  if (!done) {
    throw Error(ErrorCode::kTimedOut,
                "the future was not done within " + std::to_string(limit->count()) + " ms; what makes it goes on");
  }
  if (state_->failure) throw Error(*state_->failure);
  return state_->value;
}

const std::optional<Failure>& FutureState::failure() const { return state_->failure; }

void FutureState::OnDone(UniqueFunction<void()> callback) {
  OnDone(Callback([callback = std::move(callback)](const auto&) mutable { callback(); }));
}

void FutureState::OnDone(Callback callback) {
  if (Surroundings mine = Surroundings::current(); !mine.empty()) {
    callback = [mine = std::move(mine), callback = std::move(callback)](const auto& future) mutable {
      const Surroundings::Scope scope(std::move(mine));
      callback(future);
    };
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->callbacks.push_back(std::move(callback));
    if (!state_->completed) return;
  }
  state_->Drain(weak_from_this().lock());
}

}  // namespace gradwire::detail
