// The arguments of the `rref.*` functions: ids as one tuple of integers (docs/wire.md).
#pragma once

#include <cstdint>
#include <tuple>

#include "base/ids.h"
#include "gradwire/value.h"

namespace gradwire::rref {

inline constexpr const char* kAddFunction = "rref.add";          // AddFork
inline constexpr const char* kDropFunction = "rref.drop";        // DropFork
inline constexpr const char* kFetchFunction = "rref.fetch";      // Fetch
inline constexpr const char* kConfirmFunction = "rref.confirm";  // Confirm

struct Ids {
  RRefId rref;
  ForkId fork;
  WorkerId holder;
};

// Bits of an unsigned number pass through int64 unchanged.
using IdTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

inline Payload EncodeIds(RRefId rref, ForkId fork, WorkerId holder) {
  const auto bits = [](uint64_t value) { return static_cast<int64_t>(value); };
  return EncodeValue(IdTuple(bits(rref.creator.packed()), bits(rref.number), bits(fork.creator.packed()),
                             bits(fork.number), bits(holder.packed())));
}

inline Ids DecodeIds(const Payload& payload) {
  const auto [rref, rref_number, fork, fork_number, holder] = DecodeValue<IdTuple>(payload);
  const auto worker = [](int64_t value) { return WorkerId::FromPacked(static_cast<uint64_t>(value)); };
  return {.rref = {worker(rref), static_cast<uint64_t>(rref_number)},
          .fork = {worker(fork), static_cast<uint64_t>(fork_number)},
          .holder = worker(holder)};
}

}  // namespace gradwire::rref
