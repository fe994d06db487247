// Event: set once, waited for by any number of threads. The one thing on which a thread of the library blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace gradwire {

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Wakes all waiters. After the first Set() the others do nothing. The event may be destroyed by a woken waiter as
  // soon as Set() has made is_set() true: Set() does not touch the object's memory after that but for the wake-up by
  // address.
  void Set();
  bool is_set() const { return state_.load(std::memory_order_acquire) == kSet; }

  // True when set; false when `limit` has passed first. Spins for under a microsecond, then sleeps. Blocks the thread
  // as it is: callers go through Executor::Await, which lets another pool thread run meanwhile.
  bool Wait(std::optional<Duration> limit = std::nullopt);

 private:
  static constexpr uint32_t kClear = 0, kSleepers = 1, kSet = 2;
  std::atomic<uint32_t> state_{kClear};
};

}  // namespace gradwire
