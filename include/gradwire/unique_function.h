// UniqueFunction: a move-only callable; std::function asks for copyable captures, which completions do not have.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace gradwire {

template <class Signature>
class UniqueFunction;

template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)

  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, UniqueFunction> && std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      UniqueFunction(F&& f)  // NOLINT(google-explicit-constructor)
      : callable_(std::make_unique<Model<std::decay_t<F>>>(std::forward<F>(f))) {}

  explicit operator bool() const { return callable_ != nullptr; }
  R operator()(Args... args) { return callable_->Call(std::forward<Args>(args)...); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual R Call(Args... args) = 0;
  };
  template <class F>
  struct Model final : Concept {
    explicit Model(F&& f) : f(std::move(f)) {}
    explicit Model(const F& f) : f(f) {}
    R Call(Args... args) override { return f(std::forward<Args>(args)...); }
    F f;
  };

  std::unique_ptr<Concept> callable_;
};

}  // namespace gradwire
