// The written deadline of the call that this thread serves: calls made meanwhile inherit what is left of it (C2).
#pragma once

#include <optional>

#include "base/clock.h"

namespace gradwire::rpc {

std::optional<TimePoint> CurrentDeadline();

class DeadlineScope {
 public:
  explicit DeadlineScope(TimePoint deadline);
  ~DeadlineScope();
  DeadlineScope(const DeadlineScope&) = delete;

 private:
  std::optional<TimePoint> outer_;
};

}  // namespace gradwire::rpc
