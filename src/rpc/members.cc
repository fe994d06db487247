#include "rpc/members.h"

#include <algorithm>
#include <utility>

#include "gradwire/error.h"

namespace gradwire::rpc {
namespace {

constexpr size_t kMostLost = 1000;  // of an open group whose workers all have names of their own

}  // namespace

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
  if (FindLost(member.peer.id)) return false;
  AddLocked(std::move(member));
  return true;
}

void Members::AddLocked(Member member) {
  const uint32_t rank = member.peer.id.rank;
  if (auto it = by_rank_.find(rank); it != by_rank_.end() && it->second.peer.id != member.peer.id) LoseLocked(rank);
  if (auto it = by_name_.find(member.peer.name); it != by_name_.end() && it->second != rank) LoseLocked(it->second);
  std::erase_if(lost_, [&](const Member& lost) { return lost.peer.name == member.peer.name; });
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

void Members::Lose(WorkerId id) {
  std::lock_guard lock(mutex_);
  const auto it = by_rank_.find(id.rank);
  if (it != by_rank_.end() && it->second.peer.id == id) LoseLocked(id.rank);
}

void Members::LoseLocked(uint32_t rank) {
  const auto it = by_rank_.find(rank);
  by_name_.erase(it->second.peer.name);
  lost_.push_back(std::move(it->second));
  by_rank_.erase(it);
  if (lost_.size() > kMostLost) lost_.pop_front();
}

const Member* Members::FindLost(WorkerId id) const {
  const auto it = std::find_if(lost_.rbegin(), lost_.rend(), [&](const Member& lost) { return lost.peer.id == id; });
  return it == lost_.rend() ? nullptr : &*it;
}

const Member* Members::FindLost(const std::string& name) const {
  const auto it = std::find_if(lost_.rbegin(), lost_.rend(), [&](const Member& m) { return m.peer.name == name; });
  return it == lost_.rend() ? nullptr : &*it;
}

void Members::ThrowUnknown(const std::string& what) const {
  std::string known;
  for (const auto& [other, rank] : by_name_) {
    if (known.size() > 400) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + other;
  }
  throw Error(ErrorCode::kUnknownWorker,
              "could not find destination: there is no " + what + " in this group (known: " + known + ")");
}

Peer Members::Named(const std::string& name) const {
  std::lock_guard lock(mutex_);
  if (auto it = by_name_.find(name); it != by_name_.end()) return by_rank_.at(it->second).peer;
  if (const Member* lost = FindLost(name)) return lost->peer;
  ThrowUnknown("worker named '" + name + "'");
}

Peer Members::Ranked(int64_t rank) const {
  std::lock_guard lock(mutex_);
  if (rank >= 0 && rank <= UINT32_MAX) {
    if (auto it = by_rank_.find(static_cast<uint32_t>(rank)); it != by_rank_.end()) return it->second.peer;
    const auto lost = std::find_if(lost_.rbegin(), lost_.rend(),
                                   [&](const Member& m) { return m.peer.id.rank == static_cast<uint32_t>(rank); });
    if (lost != lost_.rend()) return lost->peer;
  }
  throw Error(ErrorCode::kUnknownWorker, "could not find destination: there is no worker of rank " +
                                             std::to_string(rank) + " in this group of " +
                                             std::to_string(by_rank_.size()));
}

Peer Members::Meant(const WorkerInfo& info) const {
  std::lock_guard lock(mutex_);
  const auto is_meant = [&](const Peer& peer) {
    return int64_t{peer.id.rank} == info.id && peer.name == info.name &&
           (info.incarnation == 0 || info.incarnation == peer.id.incarnation);
  };
  if (info.id >= 0 && info.id <= UINT32_MAX) {
    const auto it = by_rank_.find(static_cast<uint32_t>(info.id));
    if (it != by_rank_.end() && is_meant(it->second.peer)) return it->second.peer;
  }
  const Member* lost = FindLost(info.name);
  if (lost && is_meant(lost->peer)) return lost->peer;
  const std::string who = "worker '" + info.name + "' of rank " + std::to_string(info.id);
  const auto named = by_name_.find(info.name);
  if (info.incarnation == 0) {
    ThrowUnknown(who + (named == by_name_.end() ? "" : ", but one of rank " + std::to_string(named->second)));
  }
  throw Error(Failure{
      .code = ErrorCode::kDisconnected,
      .text = who + ", which this WorkerInfo means, is gone" +
              (named == by_name_.end()
                   ? ""
                   : ": another worker has taken its name. get_worker_info('" + info.name + "') tells of that one"),
      .worker = info.name});
}

std::optional<Member> Members::Find(WorkerId id) const {
  std::lock_guard lock(mutex_);
  auto it = by_rank_.find(id.rank);
  if (it != by_rank_.end() && it->second.peer.id == id) return it->second;
  if (const Member* lost = FindLost(id)) return *lost;
  return std::nullopt;
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
