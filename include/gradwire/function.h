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
#include "gradwire/value.h"

namespace gradwire {

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

template <class R, class... A, class F>
Payload Invoke(Function<R(A...)>*, F& f, Payload& args) {
  std::tuple<A...> values = DecodeValue<std::tuple<A...>>(args);
  if constexpr (std::is_void_v<R>) {
    std::apply(f, std::move(values));
    Payload none;
    ValueWriter(none).PutNone();
    return none;
  } else {
    return EncodeValue<std::decay_t<R>>(std::apply(f, std::move(values)));
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
  // the callee; what it throws reaches the caller as Error(kRemote) with type and text. Throws Error(kInvalid) for a
  // name that is taken.
  template <class F>
  auto Add(std::string name, F f, FunctionOptions options = {}) {
    using Signature = typename detail::SignatureOf<std::decay_t<F>>::Decayed;
    AddHandler(
        name,
        [f = std::move(f)](const std::shared_ptr<IncomingCall>& call) mutable {
          call->Reply(detail::Invoke(static_cast<Function<Signature>*>(nullptr), f, call->args()));
        },
        options);
    return Function<Signature>{std::move(name)};
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
