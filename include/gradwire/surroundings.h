// Surroundings: what a thread runs inside of, and what it starts goes on in.
#pragma once

#include <memory>
#include <utility>

#include "gradwire/export.h"

namespace gradwire {

namespace detail {
struct SurroundingsState;
}

// The written deadline of the call that a thread serves (C2), and the autograd context that is current on it. A call
// belongs to what it is made in, a continuation of a future to what it was added in. Cheap to copy; does not keep the
// context alive.
class GRADWIRE_API Surroundings {
 public:
  Surroundings() = default;  // nothing at all
  explicit Surroundings(std::shared_ptr<const detail::SurroundingsState> state) : state_(std::move(state)) {}

  static Surroundings current();  // of this thread

  bool empty() const { return !state_; }
  const std::shared_ptr<const detail::SurroundingsState>& state() const { return state_; }

  // Puts them in place of the thread's own. Destroyed on the thread that made it, inner ones first.
  class GRADWIRE_API Scope {
   public:
    explicit Scope(Surroundings surroundings);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    std::shared_ptr<const detail::SurroundingsState> outer_;
  };

 private:
  std::shared_ptr<const detail::SurroundingsState> state_;
};

}  // namespace gradwire
