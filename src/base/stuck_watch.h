// StuckWatch: when a line of waiting tasks gets one thread more than its limit, for waits that a pool cannot see (C3).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradwire {

// Whether one of these threads has a processor or wants one at this moment. On a busy machine, too, those that compute
// always do, those that wait never, and those that poll with pauses seldom.
bool AnyComputes(const std::vector<pid_t>& threads);

// Judges one line by its progress, period by period. A line that may not begin a task, and of which none was begun in a
// period, stands. While the threads wait or poll it gets one thread more after each such period. Threads that compute
// would only take the processor from each other, and number no more than the program has said; but one may also spin
// on what only a later task brings. So among those the line gets one more after each kPatience periods only, up to half
// as many as may run.
class StuckWatch {
 public:
  static constexpr int kPatience = 5;

  StuckWatch(size_t max_running, size_t max_stuck)
      : max_computing_(max_running < 2 ? 1 : max_running / 2), max_stuck_(max_stuck) {}

  // The first period begins. `begun`: how many tasks of the line were begun so far.
  void Begin(uint64_t begun);
  // A period has ended, at which the line may not begin a task. Whether it gets one more thread; `stuck` it has.
  bool Look(uint64_t begun, bool computing, size_t stuck);

 private:
  const size_t max_computing_;
  const size_t max_stuck_;
  uint64_t begun_ = 0;
  int standing_ = 0;  // periods
};

}  // namespace gradwire
