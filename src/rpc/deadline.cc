#include "rpc/deadline.h"

#include <algorithm>

namespace gradwire::rpc {
namespace {
thread_local std::optional<TimePoint> current;
}

std::optional<TimePoint> CurrentDeadline() { return current; }

DeadlineScope::DeadlineScope(TimePoint deadline) : outer_(current) {
  current = outer_ ? std::min(*outer_, deadline) : deadline;
}

DeadlineScope::~DeadlineScope() { current = outer_; }

}  // namespace gradwire::rpc
