#include "rpc/pending_calls.h"

#include <utility>

namespace gradwire::rpc {

CallId PendingCalls::NextId() {
  std::lock_guard lock(mutex_);
  return ++last_id_;
}

void PendingCalls::Add(std::shared_ptr<PendingCall> call) {
  std::lock_guard lock(mutex_);
  external_ += !call->internal;
  ++to_peer_[call->to.id];
  const CallId id = call->id;
  calls_.emplace(id, std::move(call));
}

bool PendingCalls::SetTimer(CallId id, TimerId timer) {
  std::lock_guard lock(mutex_);
  auto it = calls_.find(id);
  if (it == calls_.end()) return false;
  it->second->timer = timer;
  return true;
}

std::shared_ptr<PendingCall> PendingCalls::Take(CallId id, std::optional<WorkerId> to) {
  std::lock_guard lock(mutex_);
  return TakeLocked(id, to);
}

std::shared_ptr<PendingCall> PendingCalls::TakeLocked(CallId id, std::optional<WorkerId> to) {
  auto it = calls_.find(id);
  if (it == calls_.end() || (to && it->second->to.id != *to)) return nullptr;
  auto call = std::move(it->second);
  calls_.erase(it);
  external_ -= !call->internal;
  --to_peer_[call->to.id];
  return call;
}

std::shared_ptr<PendingCall> PendingCalls::TakeToCancel(CallId id) {
  std::lock_guard lock(mutex_);
  if (auto it = sending_.find(id); it != sending_.end()) it->second = true;
  return TakeLocked(id);
}

std::shared_ptr<PendingCall> PendingCalls::BeginSend(CallId id) {
  std::lock_guard lock(mutex_);
  auto call = TakeLocked(id);
  if (call) sending_.emplace(id, false);
  return call;
}

bool PendingCalls::EndSend(CallId id) {
  std::lock_guard lock(mutex_);
  auto it = sending_.find(id);
  const bool cancelled = it->second;
  sending_.erase(it);
  return cancelled;
}

std::vector<std::shared_ptr<PendingCall>> PendingCalls::TakeAllTo(WorkerId peer) {
  std::vector<std::shared_ptr<PendingCall>> taken;
  std::lock_guard lock(mutex_);
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (it->second->to.id == peer) {
      external_ -= !it->second->internal;
      taken.push_back(std::move(it->second));
      it = calls_.erase(it);
    } else {
      ++it;
    }
  }
  to_peer_.erase(peer);
  return taken;
}

WorkerSet PendingCalls::Awaited() const {
  WorkerSet awaited;
  std::lock_guard lock(mutex_);
  for (const auto& [peer, calls] : to_peer_) {
    if (calls > 0) awaited.insert(peer);
  }
  return awaited;
}

std::vector<std::shared_ptr<PendingCall>> PendingCalls::TakeAll() {
  std::vector<std::shared_ptr<PendingCall>> taken;
  std::lock_guard lock(mutex_);
  for (auto& [id, call] : calls_) taken.push_back(std::move(call));
  calls_.clear();
  to_peer_.clear();
  external_ = 0;
  return taken;
}

CallState PendingCalls::StateOf(CallId id, WorkerId to) const {
  std::lock_guard lock(mutex_);
  auto it = calls_.find(id);
  return it == calls_.end() || it->second->to.id != to ? CallState{} : it->second->state;
}

std::vector<std::shared_ptr<const PendingCall>> PendingCalls::All() const {
  std::vector<std::shared_ptr<const PendingCall>> all;
  std::lock_guard lock(mutex_);
  for (const auto& [id, call] : calls_) {
    if (!call->internal) all.push_back(call);
  }
  return all;
}

size_t PendingCalls::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

bool PendingCalls::any_to(WorkerId peer) const {
  std::lock_guard lock(mutex_);
  auto it = to_peer_.find(peer);
  return it != to_peer_.end() && it->second > 0;
}

size_t PendingCalls::external() const {
  std::lock_guard lock(mutex_);
  return external_;
}

}  // namespace gradwire::rpc
