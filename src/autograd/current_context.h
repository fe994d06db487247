// CurrentContext: the context that is current on a thread, for one worker. Several workers may share a thread.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/context.h"
#include "rpc/surroundings.h"

namespace gradwire::autograd {

class CurrentContext {
 public:
  CurrentContext();
  CurrentContext(const CurrentContext&) = delete;

  // Null when there is none, or when it has been released meanwhile: then what runs here runs without (A7).
  std::shared_ptr<ContextState> get() const;
  // The surroundings of this thread with another context current; null: with none. Does not keep it alive.
  Surroundings With(const std::shared_ptr<ContextState>& context) const;

  // Destroyed on the thread that made it.
  class Scope {
   public:
    Scope(const CurrentContext& current, const std::shared_ptr<ContextState>& context)
        : scope_(current.With(context)) {}

   private:
    const Surroundings::Scope scope_;
  };

 private:
  const uint64_t owner_;  // never used twice in a process, other than an address
};

}  // namespace gradwire::autograd
