#include "transport/write_role.h"

namespace gradwire::transport {

bool WriteRole::Wake() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  for (;;) {
    const bool free = !(state & (kHeld | kFull | kEnded));
    const uint32_t next = free ? state | kHeld : state | kWanted;
    // Also where nothing changes: the holder's next look must come after what the caller did before.
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel, std::memory_order_relaxed)) return free;
  }
}

bool WriteRole::OnRoom() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while ((state & kFull) && !(state & (kHeld | kEnded))) {
    const uint32_t next = (state & ~kFull) | kHeld;
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
  }
  return false;
}

WriteRole::Given WriteRole::GiveBack() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  for (;;) {
    if ((state & kWanted) && !(state & kEnded)) return Given::kWanted;
    if (state_.compare_exchange_weak(state, state & ~kHeld, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return state & kEnded ? Given::kEnded : Given::kFree;
    }
  }
}

WriteRole::Given WriteRole::GiveBackUntilRoom() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  for (;;) {
    const uint32_t next = (state & ~kHeld) | kFull;
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return state & kEnded ? Given::kEnded : Given::kFree;
    }
  }
}

}  // namespace gradwire::transport
