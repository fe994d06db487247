// What Surroundings hold, and how the layers put their own parts in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gradwire/surroundings.h"

namespace gradwire::detail {

// Never changed: threads share it.
struct SurroundingsState {
  std::optional<TimePoint> deadline;
  std::vector<std::pair<uint64_t, std::weak_ptr<void>>> things;  // by a number of whoever put it there
};

}  // namespace gradwire::detail

namespace gradwire::rpc {

// The thing with this number among the surroundings of this thread; null when there is none.
std::shared_ptr<void> CurrentThing(uint64_t number);
// The surroundings of this thread with another thing; an expired one: without.
Surroundings WithThing(uint64_t number, std::weak_ptr<void> thing);

// Calls inherit what is left of it.
std::optional<TimePoint> CurrentDeadline();
// The surroundings of this thread with the earlier one of its deadline and this.
Surroundings WithDeadline(TimePoint deadline);

}  // namespace gradwire::rpc
