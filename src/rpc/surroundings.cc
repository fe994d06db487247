#include "rpc/surroundings.h"

#include <algorithm>

namespace gradwire {
namespace {

using State = detail::SurroundingsState;

thread_local std::shared_ptr<const State> surroundings;

Surroundings Made(State state) {
  if (!state.deadline && state.things.empty()) return {};
  return Surroundings(std::make_shared<const State>(std::move(state)));
}

State Copied() { return surroundings ? *surroundings : State{}; }

}  // namespace

Surroundings Surroundings::current() { return Surroundings(surroundings); }

Surroundings::Scope::Scope(Surroundings inner)
    : outer_(std::exchange(surroundings, std::move(inner.state_))) {}

Surroundings::Scope::~Scope() { surroundings = std::move(outer_); }

namespace rpc {

std::shared_ptr<void> CurrentThing(uint64_t number) {
  if (!surroundings) return nullptr;
  for (const auto& [owner, thing] : surroundings->things) {
    if (owner == number) return thing.lock();
  }
  return nullptr;
}

Surroundings WithThing(uint64_t number, std::weak_ptr<void> thing) {
  State state = Copied();
  std::erase_if(state.things, [number](const auto& entry) { return entry.first == number; });
  if (!thing.expired()) state.things.emplace_back(number, std::move(thing));
  return Made(std::move(state));
}

std::optional<TimePoint> CurrentDeadline() { return surroundings ? surroundings->deadline : std::nullopt; }

Surroundings WithDeadline(TimePoint deadline) {
  State state = Copied();
  state.deadline = state.deadline ? std::min(*state.deadline, deadline) : deadline;
  return Made(std::move(state));
}

}  // namespace rpc
}  // namespace gradwire
