#include "gradwire/future.h"

#include <deque>
#include <mutex>
#include <optional>

#include "base/event.h"
#include "base/executor.h"
#include "gradwire/call.h"

namespace gradwire::detail {

struct FutureState::State : std::enable_shared_from_this<State> {
  explicit State(std::shared_ptr<Executor> executor) : executor(std::move(executor)) {}

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
  std::deque<UniqueFunction<void()>> callbacks;

  bool Finish(std::shared_ptr<void> new_value, std::optional<Failure> new_failure) {
    {
      std::lock_guard lock(mutex);
      if (completed) return false;
      completed = true;
      value = std::move(new_value);
      failure = std::move(new_failure);
    }
    event.Set();
    Drain();
    return true;
  }

  void Drain() {
    {
      std::lock_guard lock(mutex);
      if (draining || callbacks.empty()) return;
      draining = true;
    }
    executor->Post([self = shared_from_this()] {
      for (;;) {
        UniqueFunction<void()> next;
        {
          std::lock_guard lock(self->mutex);
          if (self->callbacks.empty()) {
            self->draining = false;
            return;
          }
          next = std::move(self->callbacks.front());
          self->callbacks.pop_front();
        }
        next();
      }
    });
  }
};

FutureState::FutureState(std::shared_ptr<Executor> executor) : state_(std::make_shared<State>(std::move(executor))) {}
FutureState::~FutureState() = default;

bool FutureState::Complete(std::shared_ptr<void> value) { return state_->Finish(std::move(value), std::nullopt); }
bool FutureState::Fail(Failure failure) { return state_->Finish(nullptr, std::move(failure)); }

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

const std::shared_ptr<void>& FutureState::Wait() const {
  if (!state_->event.is_set()) state_->executor->Await(state_->event);
  if (state_->failure) throw Error(*state_->failure);
  return state_->value;
}

void FutureState::OnDone(UniqueFunction<void()> callback) {
  {
    std::lock_guard lock(state_->mutex);
    state_->callbacks.push_back(std::move(callback));
    if (!state_->completed) return;
  }
  state_->Drain();
}

}  // namespace gradwire::detail
