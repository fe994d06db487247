// Future<T>: the result of a call that is under way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradwire/error.h"
#include "gradwire/export.h"
#include "gradwire/unique_function.h"

namespace gradwire {

class CallHandle;
class Executor;

namespace detail {

// What a caught exception says of the failure of a call or a future: an Error's own failure, of others kRemote with
// type and text (of libtorch's without its frames of C++). To be called in a catch (...); lets the unwinding of a
// thread that ends go on.
GRADWIRE_API Failure CaughtFailure();

// The part that does not depend on T. Completed once; later completions are ignored. Thread-safe. Without an executor
// callbacks run where they are added or where the future is completed. When the last one who could complete it lets go,
// and nobody but callbacks waits, it fails with kInvalid (C1): callbacks must not hold the future that they are added
// to.
class GRADWIRE_API FutureState : public std::enable_shared_from_this<FutureState> {
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
  // Blocks until done; the value, or throws Error. kTimedOut when `limit` has passed first.
  const std::shared_ptr<void>& Wait(std::optional<std::chrono::milliseconds> limit = std::nullopt) const;
  // What made it fail; nothing otherwise. Only of one that is done.
  const std::optional<Failure>& failure() const;
  // Calls `callback` with this future on the executor when done, at once when it is already, inside the surroundings
  // that this thread has now. Callbacks of one future run in the order of their registration, one after another; what
  // they are given has the value or the failure. What one throws is logged. Destroyed without a call when the executor
  // has ended.
  using Callback = UniqueFunction<void(const std::shared_ptr<FutureState>&)>;
  void OnDone(Callback callback);
  void OnDone(UniqueFunction<void()> callback);
  const std::shared_ptr<Executor>& executor() const;

 private:
  struct State;
  explicit FutureState(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
};

// The right to complete a future. Goes with it unused when an executor drops what it was given, since its worker has
// ended: then the future fails with kDisconnected (C1).
class GRADWIRE_API Promise {
 public:
  explicit Promise(std::shared_ptr<FutureState> state) : state_(std::move(state)) {}
  Promise(Promise&&) = default;
  ~Promise();

  FutureState* operator->() const { return state_.get(); }

 private:
  std::shared_ptr<FutureState> state_;
};

}  // namespace detail

template <class T>
class Future {
 public:
  Future() = default;  // of no call: only assignment is allowed
  explicit Future(std::shared_ptr<detail::FutureState> state) : state_(std::move(state)) {}

  // Blocks until the result is there; throws Error when the call failed (C1: every wait ends). Any thread, any number
  // of times. On a pool thread another one runs in its place meanwhile.
  T wait() const { return Get(state_->Wait()); }
  // The same, but for at most `limit`: then Error(kTimedOut). The call goes on.
  T wait(std::chrono::milliseconds limit) const { return Get(state_->Wait(limit)); }

  bool done() const { return state_->done(); }

  // Ends it with kCancelled unless it is done; true when it did. The call behind it is cancelled on its callee too
  // (CallHandle); one that `then` made has no call, and the future that it comes from goes on.
  bool cancel() const { return state_->Cancel(); }

  // The result of `f(*this)`, called on a pool thread once this is done, failed or not. What `f` throws fails the
  // returned future. Calls of `f` belong to the autograd context and the deadline in which this was called
  // (surroundings.h).
  template <class F>
  auto then(F f) const {
    using U = std::invoke_result_t<F&, Future<T>>;
    auto next = std::make_shared<detail::FutureState>(state_->executor());
    state_->OnDone(
        [f = std::move(f), promise = detail::Promise(next)](const std::shared_ptr<detail::FutureState>& state) mutable {
          try {
            if constexpr (std::is_void_v<U>) {
              f(Future<T>(state));
              promise->Complete(nullptr);
            } else {
              promise->Complete(std::make_shared<U>(f(Future<T>(state))));
            }
          } catch (...) {
            promise->Fail(detail::CaughtFailure());
          }
        });
    return Future<U>(std::move(next));
  }

  // Calls `f(*this)` on a pool thread once this is done, failed or not. Those of one future run one after another, in
  // the order in which they were added, those of `then` among them. What `f` throws is logged.
  template <class F>
  void add_done_callback(F f) const {
    state_->OnDone(
        [f = std::move(f)](const std::shared_ptr<detail::FutureState>& state) mutable { f(Future<T>(state)); });
  }

  const std::shared_ptr<detail::FutureState>& state() const { return state_; }

 private:
  static T Get([[maybe_unused]] const std::shared_ptr<void>& value) {
    if constexpr (!std::is_void_v<T>) return *static_cast<const T*>(value.get());
  }

  std::shared_ptr<detail::FutureState> state_;
};

// The futures themselves, once all are done, failed ones too, in their order. None at all: done at once.
template <class T>
Future<std::vector<Future<T>>> collect_all(std::vector<Future<T>> futures) {
  using All = std::vector<Future<T>>;
  auto all = std::make_shared<detail::FutureState>(futures.empty() ? nullptr : futures[0].state()->executor());
  if (futures.empty()) all->Complete(std::make_shared<All>());
  // Held by the futures' callbacks, so it may hold only those that are done.
  struct Join {
    Join(std::shared_ptr<detail::FutureState> all, size_t count) : promise(std::move(all)), left(count), done(count) {}
    const detail::Promise promise;
    std::atomic<size_t> left;
    All done;
  };
  auto join = std::make_shared<Join>(all, futures.size());
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i].state()->OnDone([join, i](const std::shared_ptr<detail::FutureState>& state) {
      join->done[i] = Future<T>(state);
      if (join->left.fetch_sub(1) == 1) join->promise->Complete(std::make_shared<All>(std::move(join->done)));
    });
  }
  return Future<All>(std::move(all));
}

namespace detail {
// Returns when all are done, throws Error as soon as one has failed.
template <class T>
void AwaitAll(const std::vector<Future<T>>& futures) {
  if (futures.empty()) return;
  struct Join {
    Join(std::shared_ptr<FutureState> over, size_t count) : promise(std::move(over)), left(count) {}
    const Promise promise;
    std::atomic<size_t> left;
  };
  auto over = std::make_shared<FutureState>(futures[0].state()->executor());
  auto join = std::make_shared<Join>(over, futures.size());
  for (const Future<T>& future : futures) {
    future.state()->OnDone([join](const std::shared_ptr<FutureState>& state) {
      if (state->failure()) {
        join->promise->Fail(*state->failure());
      } else if (join->left.fetch_sub(1) == 1) {
        join->promise->Complete(nullptr);
      }
    });
  }
  join.reset();  // of the callbacks alone
  over->Wait();
}
}  // namespace detail

// Their values in order. Throws the first Error that comes, without waiting for the rest. As wait() otherwise.
template <class T>
std::vector<T> wait_all(const std::vector<Future<T>>& futures) {
  detail::AwaitAll(futures);
  std::vector<T> values;
  values.reserve(futures.size());
  for (const Future<T>& future : futures) values.push_back(future.wait());
  return values;
}
inline void wait_all(const std::vector<Future<void>>& futures) { detail::AwaitAll(futures); }

}  // namespace gradwire
