// Identities that travel: workers, calls, references, forks, messages. Distinct types, so that none stands for another.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace gradwire {

// A worker in one life: its rank, and a nonce drawn at each start, so that a restarted worker is another worker.
struct WorkerId {
  uint32_t rank = 0;
  uint32_t incarnation = 0;

  auto operator<=>(const WorkerId&) const = default;
  uint64_t packed() const { return uint64_t{rank} << 32 | incarnation; }
  static WorkerId FromPacked(uint64_t packed) {
    return {static_cast<uint32_t>(packed >> 32), static_cast<uint32_t>(packed)};
  }
};

// (creator, counter): unique without asking anybody. `Tag` only keeps the kinds apart.
template <class Tag>
struct GlobalId {
  WorkerId creator;
  uint64_t number = 0;

  auto operator<=>(const GlobalId&) const = default;
};

using RRefId = GlobalId<struct RRefTag>;        // a remote reference
using ForkId = GlobalId<struct ForkTag>;        // one holder's share of a reference; same counter as RRefId
using MessageId = GlobalId<struct MessageTag>;  // a pair of send and receive nodes of distributed autograd
using CallId = uint64_t;                        // counts the calls of one caller, from 1
using ContextId = int64_t;                      // worker rank << 48 | counter

// "GloballyUniqueId(created_on=2, local_id=7)" is what the field prints; the incarnation stays out of it.
template <class Tag>
std::string ToString(const GlobalId<Tag>& id) {
  return "GloballyUniqueId(created_on=" + std::to_string(id.creator.rank) + ", local_id=" + std::to_string(id.number) +
         ")";
}

}  // namespace gradwire

template <>
struct std::hash<gradwire::WorkerId> {
  size_t operator()(const gradwire::WorkerId& id) const noexcept { return std::hash<uint64_t>()(id.packed()); }
};

template <class Tag>
struct std::hash<gradwire::GlobalId<Tag>> {
  size_t operator()(const gradwire::GlobalId<Tag>& id) const noexcept {
    return std::hash<uint64_t>()(id.creator.packed() * 0x9E3779B97F4A7C15ull + id.number);
  }
};
