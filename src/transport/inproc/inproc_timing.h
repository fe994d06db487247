// InprocTiming: how long things take on a simulated network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include "base/clock.h"

namespace gradwire::transport {

// Any thread. The same seed and the same order of calls give the same times.
class InprocTiming {
 public:
  InprocTiming(std::shared_ptr<Clock> clock, Duration least, Duration most, uint64_t seed)
      : clock_(std::move(clock)), least_(least), most_(most), random_(seed) {}

  Clock& clock() const { return *clock_; }
  TimePoint Now() const { return clock_->Now(); }

  // When something that sets out now arrives.
  TimePoint Arrival() {
    const auto spread = static_cast<uint64_t>((most_ - least_).count());
    std::lock_guard lock(mutex_);
    return clock_->Now() + least_ + Duration(static_cast<Duration::rep>(random_() % (spread + 1)));
  }
  // 0 to `most`.
  size_t UpTo(size_t most) {
    std::lock_guard lock(mutex_);
    return random_() % (most + 1);
  }

 private:
  const std::shared_ptr<Clock> clock_;
  const Duration least_, most_;
  std::mutex mutex_;  // guards:
  std::mt19937_64 random_;
};

}  // namespace gradwire::transport
