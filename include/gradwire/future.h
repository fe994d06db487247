// Future<T>: the result of a call that is under way.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "gradwire/error.h"
#include "gradwire/export.h"
#include "gradwire/unique_function.h"

namespace gradwire {

class CallHandle;
class Executor;

namespace detail {

// The part that does not depend on T. Completed once; later completions are ignored. Thread-safe.
class GRADWIRE_API FutureState {
 public:
  explicit FutureState(std::shared_ptr<Executor> executor);
  ~FutureState();

  // Whether this completed it.
  bool Complete(std::shared_ptr<void> value);
  bool Fail(Failure failure);
  // What Cancel() cancels; when not given, only the future itself ends.
  void SetCall(CallHandle call);
  bool Cancel();
  bool done() const;
  // Blocks until done; the value, or throws Error.
  const std::shared_ptr<void>& Wait() const;
  // Calls `callback` on the executor when done, at once when it is already. Callbacks of one future run in the order of
  // their registration, one after another.
  void OnDone(UniqueFunction<void()> callback);
  const std::shared_ptr<Executor>& executor() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace detail

template <class T>
class Future {
 public:
  Future() = default;  // of no call: only assignment is allowed
  explicit Future(std::shared_ptr<detail::FutureState> state) : state_(std::move(state)) {}

  // Blocks until the result is there; throws Error when the call failed (C1: every wait ends). Any thread, any number
  // of times. On a pool thread another one runs in its place meanwhile.
  T wait() const {
    if constexpr (std::is_void_v<T>) {
      state_->Wait();
    } else {
      return *static_cast<const T*>(state_->Wait().get());
    }
  }

  bool done() const { return state_->done(); }

  // Ends it with kCancelled unless it is done; true when it did. The call behind it is cancelled on its callee too
  // (CallHandle); one that `then` made has no call, and the future that it comes from goes on.
  bool cancel() const { return state_->Cancel(); }

  // The result of `f(*this)`, called on a pool thread once this is done, failed or not. What `f` throws fails the
  // returned future.
  template <class F>
  auto then(F f) const {
    using U = std::invoke_result_t<F&, Future<T>>;
    auto next = std::make_shared<detail::FutureState>(state_->executor());
    state_->OnDone([self = *this, f = std::move(f), next]() mutable {
      try {
        if constexpr (std::is_void_v<U>) {
          f(self);
          next->Complete(nullptr);
        } else {
          next->Complete(std::make_shared<U>(f(self)));
        }
      } catch (const Error& error) {
        next->Fail(error.failure());
      } catch (const std::exception& error) {
        next->Fail(Failure{.code = ErrorCode::kRemote, .text = error.what()});
      }
    });
    return Future<U>(std::move(next));
  }

  const std::shared_ptr<detail::FutureState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::FutureState> state_;
};

}  // namespace gradwire
