#include "rpc/bulk_budget.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gradwire/error.h"

namespace gradwire::rpc {

BulkBudget::Limits BulkBudget::OfMachine() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  const size_t bytes = pages * static_cast<size_t>(std::max(sysconf(_SC_PAGESIZE), 1L)) / 5 * 4;
  return {.of_worker = bytes, .of_peer = bytes / 2};
}

BulkBudget::Lease::~Lease() {
  if (budget_) budget_->GiveBack(peer_, bytes_, granted_);
}

void BulkBudget::Ask(const std::shared_ptr<Lease>& lease, WorkerId peer, size_t bytes, Task granted) {
  if (bytes > limits_.of_worker) {
    throw Error(ErrorCode::kOverloaded, "a message of " + std::to_string(bytes) + " bytes is more than the " +
                                            std::to_string(limits_.of_worker) +
                                            " that this worker gives to all messages on their way");
  }
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<Lease>> held;  // let go of after unlock
  {
    std::lock_guard lock(mutex_);
    if (lease->granted_) return post_(std::move(granted));
    lease->budget_ = shared_from_this();
    lease->peer_ = peer;
    lease->bytes_ = bytes;
    OfPeer& of_peer = peers_[peer];
    if (of_peer.waiting.empty()) turns_.push_back(peer);
    of_peer.waiting.push_back({lease, bytes, std::move(granted)});
    GrantLocked(tasks, held);
  }
  for (Task& task : tasks) post_(std::move(task));
}

bool BulkBudget::Take(const std::shared_ptr<Lease>& lease, WorkerId peer, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!turns_.empty() || in_flight_ + bytes > limits_.of_worker) return false;
  OfPeer& of_peer = peers_[peer];
  if (of_peer.in_flight + bytes > limits_.of_peer) return false;
  in_flight_ += bytes;
  of_peer.in_flight += bytes;
  lease->budget_ = shared_from_this();
  lease->peer_ = peer;
  lease->bytes_ = bytes;
  lease->granted_ = true;
  return true;
}

// Goes round the peers. The first of a peer waits for that peer's own limit alone; once one would exceed what all may
// have, nobody overtakes it, or a large message would wait for ever.
void BulkBudget::GrantLocked(std::vector<Task>& tasks, std::vector<std::shared_ptr<Lease>>& held) {
  for (size_t looked_at = 0; looked_at < turns_.size();) {
    const WorkerId id = turns_.front();
    OfPeer& of_peer = peers_[id];
    while (!of_peer.waiting.empty() && of_peer.waiting.front().lease.expired()) of_peer.waiting.pop_front();
    if (of_peer.waiting.empty()) {
      turns_.pop_front();
      if (of_peer.in_flight == 0) peers_.erase(id);
      continue;
    }
    Waiting& first = of_peer.waiting.front();
    const bool over_peer = of_peer.in_flight > 0 && of_peer.in_flight + first.bytes > limits_.of_peer;
    if (!over_peer && in_flight_ + first.bytes > limits_.of_worker) return;
    turns_.pop_front();
    turns_.push_back(id);
    if (over_peer) {
      ++looked_at;
      continue;
    }
    looked_at = 0;
    auto lease = first.lease.lock();
    if (!lease) continue;  // it goes with the next look
    lease->granted_ = true;
    held.push_back(std::move(lease));
    in_flight_ += first.bytes;
    of_peer.in_flight += first.bytes;
    tasks.push_back(std::move(first.granted));
    of_peer.waiting.pop_front();
    if (of_peer.waiting.empty()) turns_.pop_back();
  }
}

void BulkBudget::GiveBack(WorkerId peer, size_t bytes, bool granted) {
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<Lease>> held;
  {
    std::lock_guard lock(mutex_);
    if (granted) {
      in_flight_ -= bytes;
      OfPeer& of_peer = peers_[peer];
      of_peer.in_flight -= bytes;
      if (of_peer.in_flight == 0 && of_peer.waiting.empty()) peers_.erase(peer);
    }
    GrantLocked(tasks, held);
  }
  for (Task& task : tasks) post_(std::move(task));
}

size_t BulkBudget::in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_;
}

}  // namespace gradwire::rpc
