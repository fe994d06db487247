#include "rpc/credit.h"

#include <algorithm>
#include <utility>

#include "gradwire/error.h"

namespace gradwire::rpc {

void Credit::Count() {
  std::lock_guard lock(mutex_);
  ++sent_;
}

bool Credit::Take() {
  std::lock_guard lock(mutex_);
  if (!closed_ && (!waiting_.empty() || sent_ >= granted_ + kWindow)) return false;
  ++sent_;
  return true;
}

bool Credit::TakeOrKeep(Task& send) {
  std::lock_guard lock(mutex_);
  if (closed_ || (waiting_.empty() && sent_ < granted_ + kWindow)) {
    ++sent_;
    return true;
  }
  waiting_.push_back(std::move(send));
  return false;
}

std::vector<Task> Credit::AdmitLocked() {
  std::vector<Task> admitted;
  while (!waiting_.empty() && (closed_ || sent_ < granted_ + kWindow)) {
    ++sent_;
    admitted.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return admitted;
}

std::vector<Task> Credit::GiveBack() {
  std::lock_guard lock(mutex_);
  --sent_;
  return AdmitLocked();
}

std::vector<Task> Credit::Grant(uint64_t begun) {
  std::lock_guard lock(mutex_);
  if (begun > sent_) throw Error(ErrorCode::kInvalid, "a peer has begun more requests than it was sent");
  granted_ = std::max(granted_, begun);  // a later one may overtake
  return AdmitLocked();
}

std::vector<Task> Credit::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return AdmitLocked();
}

void Credit::Arrive() {
  if (unbegun_.fetch_add(1, std::memory_order_relaxed) < kWindow) return;
  throw Error(ErrorCode::kInvalid, "more than " + std::to_string(kWindow) + " of its calls wait to be begun");
}

std::optional<uint64_t> Credit::Begin(bool bounded) {
  if (bounded) unbegun_.fetch_sub(1, std::memory_order_relaxed);
  const uint64_t begun = begun_.fetch_add(1, std::memory_order_acq_rel) + 1;  // after what is not counted now
  // Often enough: when the sender's last one is begun, less than this many are not known to be.
  if (begun % (kWindow / 4) != 0) return std::nullopt;
  return begun;
}

}  // namespace gradwire::rpc
