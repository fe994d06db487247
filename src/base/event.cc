#include "base/event.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace gradwire {
namespace {

// A longer spin loses: what is waited for needs this processor more often than it is about to come (measured over TCP,
// two processes on two processors: 23 us a round trip with 0 to 20, 25 with 100, 34 with 400).
constexpr int kSpins = 20;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint32_t* Address(std::atomic<uint32_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

}  // namespace

void Event::Set() {
  // Only when a waiter has said that it sleeps is the kernel asked. The waiter may destroy the event once it reads
  // kSet; a wake-up by address needs no memory of it.
  uint32_t* const address = Address(state_);
  if (state_.exchange(kSet, std::memory_order_acq_rel) == kSleepers) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool Event::Wait(std::optional<Duration> limit) {
  for (int i = 0; i < kSpins; ++i) {
    if (is_set()) return true;
    Pause();
  }
  const auto end = limit ? std::chrono::steady_clock::now() + *limit : TimePoint::max();
  for (;;) {
    uint32_t seen = kClear;
    state_.compare_exchange_strong(seen, kSleepers, std::memory_order_acq_rel);
    if (seen == kSet) return true;
    timespec timeout{};
    if (limit) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return is_set();
      timeout = {.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    }
    syscall(SYS_futex, Address(state_), FUTEX_WAIT_PRIVATE, kSleepers, limit ? &timeout : nullptr, nullptr, 0);
    if (is_set()) return true;
  }
}

}  // namespace gradwire
