// Functions: what a worker lets others call, by name. Typed C++ functions travel by name and tagged values.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradwire/call.h"
#include "gradwire/export.h"
#include "gradwire/future.h"
#include "gradwire/value.h"

namespace gradwire {

// The function that runs a callable of Python on its callee. Workers without Python refuse it.
inline constexpr const char* kPythonFunction = "py.call";

// The name of a registered function, with the types that its calls are checked against at compile time.
template <class Signature>
struct Function {
  std::string name;
};

namespace detail {
template <class T>
struct SignatureOf : SignatureOf<decltype(&T::operator())> {};
template <class R, class... A>
struct SignatureOf<R (*)(A...)> {
  using Decayed = R(std::decay_t<A>...);
};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...) const> : SignatureOf<R (*)(A...)> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...)> : SignatureOf<R (*)(A...)> {};

// What callers get: the value of a Future<T>, not the future.
template <class R>
struct ResultOf {
  using Type = R;
  static constexpr bool kLater = false;
};
template <class T>
struct ResultOf<Future<T>> {
  using Type = T;
  static constexpr bool kLater = true;
};

template <class Signature>
struct SeenByCallers;
template <class R, class... A>
struct SeenByCallers<R(A...)> {
  using Type = typename ResultOf<std::decay_t<R>>::Type(A...);
};

// What `get` returns, encoded; None when that is void.
template <class F>
Payload EncodeReturned(F get) {
  using R = std::invoke_result_t<F&>;
  if constexpr (std::is_void_v<R>) {
    get();
    Payload none;
    ValueWriter(none).PutNone();
    return none;
  } else {
    return EncodeValue<std::decay_t<R>>(get());
  }
}

// Reads the arguments of a call in order. Throws Error(kInvalid) that names the function, and the argument (from 1).
class GRADWIRE_API Arguments {
 public:
  Arguments(IncomingCall& call, size_t wanted);

  template <class T>
  T Next() {
    ++number_;
    try {
      return Codec<T>::Read(reader_);
    } catch (const Error& error) {
      RethrowAbout("argument " + std::to_string(number_) + " of '" + function_ + "'", error);
    }
  }

 private:
  const std::string& function_;
  ValueReader reader_;
  size_t number_ = 0;
};

template <class R, class... A, class F>
void Answer(Function<R(A...)>*, F& f, const std::shared_ptr<IncomingCall>& call) {
  Arguments arguments(*call, sizeof...(A));
  std::tuple<A...> values{arguments.Next<A>()...};  // braces: read in order
  const auto run = [&]() -> R { return std::apply(f, std::move(values)); };
  if constexpr (ResultOf<std::decay_t<R>>::kLater) {
    const std::decay_t<R> later = run();
    if (!later.state()) throw Error(ErrorCode::kInvalid, "'" + call->function() + "' returned a future of no call");
    later.state()->OnDone([call](const std::shared_ptr<FutureState>& state) {
      call->Resume([&] { call->Reply(EncodeReturned([&] { return std::decay_t<R>(state).wait(); })); });
    });
  } else {
    call->Reply(EncodeReturned(run));
  }
}
}  // namespace detail

// The table of one worker. Thread-safe. Several workers in one process may share one.
class GRADWIRE_API Functions {
 public:
  Functions();
  ~Functions();
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;

  // Registers `f` under `name`: any callable whose parameters and result travel (value.h). It runs on a pool thread of
  // the callee; what it throws reaches the caller as Error(kRemote) with type and text. A function that returns a
  // Future<T> has the result T: the call is answered when the future is done, and no thread waits for it (C6). Throws
  // Error(kInvalid) for a name that is taken.
  template <class F>
  auto Add(std::string name, F f, FunctionOptions options = {}) {
    using Signature = typename detail::SignatureOf<std::decay_t<F>>::Decayed;
    AddHandler(
        name,
        [f = std::move(f)](const std::shared_ptr<IncomingCall>& call) mutable {
          detail::Answer(static_cast<Function<Signature>*>(nullptr), f, call);
        },
        options);
    return Function<typename detail::SeenByCallers<Signature>::Type>{std::move(name)};
  }

  // The same for a function that decodes by itself and may answer later. What it throws fails the call.
  void AddHandler(const std::string& name, Handler handler, FunctionOptions options = {});

  // Serves every name that starts with `prefix` and has no handler of its own ("aten." for operators).
  void AddFamily(const std::string& prefix, Handler handler, FunctionOptions options = {});

  // Takes away what AddHandler() or Add() registered; calls under way go on. False when there is none.
  bool Remove(const std::string& name);

  struct Entry;
  // nullptr when there is none. For the dispatcher.
  std::shared_ptr<Entry> Find(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire
