#include "autograd/context_table.h"

namespace gradwire::autograd {

std::shared_ptr<ContextState> ContextTable::New() {
  const std::lock_guard lock(mutex_);
  const ContextId id = (ContextId{rank_} << kCounterBits) | next_++;
  auto context = std::make_shared<ContextState>(id);
  entries_[id].context = context;
  return context;
}

std::shared_ptr<ContextState> ContextTable::Find(ContextId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.context;
}

std::shared_ptr<ContextState> ContextTable::Enter(ContextId id, uint32_t caller) {
  const std::lock_guard lock(mutex_);
  auto [it, is_new] = entries_.try_emplace(id);
  // One that was made here and is not here any more has been released.
  if (is_new && CreatorOf(id) != rank_) it->second.context = std::make_shared<ContextState>(id);
  ++it->second.running;
  it->second.callers.insert(caller);
  return it->second.context;
}

void ContextTable::Leave(ContextId id) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.running == 0) return;
  if (--it->second.running == 0 && !it->second.context) entries_.erase(it);
}

std::shared_ptr<ContextState> ContextTable::Release(ContextId id) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return nullptr;
  std::shared_ptr<ContextState> released = std::move(it->second.context);
  it->second.context = nullptr;
  if (it->second.running == 0) entries_.erase(it);
  return released;
}

std::vector<ContextId> ContextTable::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<ContextId> result;
  for (const auto& [id, entry] : entries_) {
    if (entry.context) result.push_back(id);
  }
  return result;
}

ContextTable::Bereaved ContextTable::PeerGone(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  Bereaved bereaved;
  for (auto& [id, entry] : entries_) {
    const bool brought = entry.callers.erase(rank) > 0;
    if (!entry.context || CreatorOf(id) == rank_) continue;
    if (CreatorOf(id) == rank) {
      bereaved.orphans.push_back(id);
    } else if (brought) {
      bereaved.strays.push_back(id);
    }
  }
  return bereaved;
}

size_t ContextTable::tombstones() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [id, entry] : entries_) count += entry.context ? 0 : 1;
  return count;
}

}  // namespace gradwire::autograd
