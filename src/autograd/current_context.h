// CurrentContext: the context that is current on a thread, for one worker. Several workers may share a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "autograd/context.h"

namespace gradwire::autograd {

class CurrentContext {
 public:
  CurrentContext();
  CurrentContext(const CurrentContext&) = delete;

  // Null when there is none, or when it has been released meanwhile: then what runs here runs without (A7).
  std::shared_ptr<ContextState> get() const;
  // Returns what was current before. Does not keep `context` alive.
  std::weak_ptr<ContextState> Set(std::weak_ptr<ContextState> context) const;

  // Destroyed on the thread that made it.
  class Scope {
   public:
    Scope(const CurrentContext& current, const std::shared_ptr<ContextState>& context)
        : current_(current), outer_(current.Set(context)) {}
    ~Scope() { current_.Set(std::move(outer_)); }
    Scope(const Scope&) = delete;

   private:
    const CurrentContext& current_;
    std::weak_ptr<ContextState> outer_;
  };

 private:
  const uint64_t owner_;  // never used twice in a process, other than an address
};

}  // namespace gradwire::autograd
