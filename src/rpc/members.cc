#include "rpc/members.h"

#include <utility>

#include "gradwire/error.h"

namespace gradwire::rpc {

void Members::Add(Member member) {
  std::lock_guard lock(mutex_);
  AddLocked(std::move(member));
}

bool Members::AddUnlessTaken(Member member) {
  std::lock_guard lock(mutex_);
  const auto named = by_name_.find(member.peer.name);
  const auto ranked = by_rank_.find(member.peer.id.rank);
  if (named != by_name_.end() && named->second != member.peer.id.rank) return false;
  if (ranked != by_rank_.end() && ranked->second.peer.id != member.peer.id) return false;
  AddLocked(std::move(member));
  return true;
}

void Members::AddLocked(Member member) {
  const uint32_t rank = member.peer.id.rank;
  if (auto it = by_rank_.find(rank); it != by_rank_.end()) by_name_.erase(it->second.peer.name);
  if (auto it = by_name_.find(member.peer.name); it != by_name_.end()) by_rank_.erase(it->second);
  by_name_[member.peer.name] = rank;
  by_rank_[rank] = std::move(member);
}

void Members::Remove(WorkerId id) {
  std::lock_guard lock(mutex_);
  const auto it = by_rank_.find(id.rank);
  if (it == by_rank_.end() || it->second.peer.id != id) return;
  by_name_.erase(it->second.peer.name);
  by_rank_.erase(it);
}

Peer Members::Named(const std::string& name) const {
  std::lock_guard lock(mutex_);
  if (auto it = by_name_.find(name); it != by_name_.end()) return by_rank_.at(it->second).peer;
  std::string known;
  for (const auto& [other, rank] : by_name_) {
    if (known.size() > 400) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + other;
  }
  throw Error(ErrorCode::kUnknownWorker, "could not find destination: there is no worker named '" + name +
                                             "' in this group (known: " + known + ")");
}

Peer Members::Ranked(int64_t rank) const {
  std::lock_guard lock(mutex_);
  if (rank >= 0 && rank <= UINT32_MAX) {
    if (auto it = by_rank_.find(static_cast<uint32_t>(rank)); it != by_rank_.end()) return it->second.peer;
  }
  throw Error(ErrorCode::kUnknownWorker, "could not find destination: there is no worker of rank " +
                                             std::to_string(rank) + " in this group of " +
                                             std::to_string(by_rank_.size()));
}

std::optional<Member> Members::Find(WorkerId id) const {
  std::lock_guard lock(mutex_);
  auto it = by_rank_.find(id.rank);
  if (it == by_rank_.end() || it->second.peer.id != id) return std::nullopt;
  return it->second;
}

std::vector<Member> Members::All() const {
  std::lock_guard lock(mutex_);
  std::vector<Member> all;
  for (const auto& [rank, member] : by_rank_) all.push_back(member);
  return all;
}

size_t Members::size() const {
  std::lock_guard lock(mutex_);
  return by_rank_.size();
}

}  // namespace gradwire::rpc
