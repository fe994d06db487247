// Clock: tells the time and calls back at it. The real one is the Loop; simulation and tests drive a fake one.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/task.h"

namespace gradwire {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;
// A longer limit stands for this one: a sum of it and a time overflows in no unit.
inline constexpr std::chrono::milliseconds kLongestLimit = std::chrono::hours(24 * 365 * 100);

using TimerId = uint64_t;  // 0 is no timer

class Clock {
 public:
  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;

  // Runs `task` on the clock's own thread, not before `when`. The task must not wait: it may step tables, queue frames
  // and post to an executor. Any thread.
  virtual TimerId CallAt(TimePoint when, Task task) = 0;

  // After return the task will not start any more; it may be running on the clock's thread right now. Unknown ids are
  // ignored. Any thread.
  virtual void Cancel(TimerId id) = 0;
};

}  // namespace gradwire
