#include "gradwire/future.h"

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/event.h"
#include "base/executor.h"
#include "base/log.h"
#include "gradwire/call.h"

namespace gradwire::detail {
namespace {

using Callbacks = std::deque<UniqueFunction<void()>>;

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
    const UniqueFunction<void()> first = std::move(callbacks.front());
    callbacks.pop_front();
  }
  waiting = nullptr;
}

}  // namespace

struct FutureState::State : std::enable_shared_from_this<State> {
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
  CallHandle call;
  bool draining = false;  // one task runs callbacks, in order
  Callbacks callbacks;

  // `future` is kept until the callbacks have run.
  using Keep = std::shared_ptr<const FutureState>;

  bool Finish(Keep future, std::shared_ptr<void> new_value, std::optional<Failure> new_failure) {
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

  void Drain(Keep future) {
    {
      std::lock_guard lock(mutex);
      if (draining || callbacks.empty()) return;
      draining = true;
    }
    if (!executor) return RunCallbacks();
    executor->Post([self = shared_from_this(), future = std::move(future)] { self->RunCallbacks(); });
  }

  void RunCallbacks() {
    const auto self = shared_from_this();  // a callback may drop the future
    for (;;) {
      UniqueFunction<void()> next;
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
        next();
      } catch (const std::exception& error) {
        Log(LogLevel::kError, "a callback of a future threw: " + std::string(error.what()));
      }
    }
  }
};

FutureState::FutureState(std::shared_ptr<Executor> executor) : state_(std::make_shared<State>(std::move(executor))) {}
FutureState::~FutureState() = default;

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
    if (state_->completed) return false;
    call = state_->call;
  }
  call.Cancel();
  return Fail({.code = ErrorCode::kCancelled, .text = "the call was cancelled by its caller"});
}
bool FutureState::done() const { return state_->event.is_set(); }
const std::shared_ptr<Executor>& FutureState::executor() const { return state_->executor; }

const std::shared_ptr<void>& FutureState::Wait(std::optional<std::chrono::milliseconds> limit) const {
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
  {
    std::lock_guard lock(state_->mutex);
    state_->callbacks.push_back(std::move(callback));
    if (!state_->completed) return;
  }
  state_->Drain(weak_from_this().lock());
}

}  // namespace gradwire::detail
