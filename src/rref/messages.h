// The arguments of the `rref.*` functions: ids as integers (docs/wire.md).
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "base/ids.h"
#include "gradwire/value.h"
#include "rref/value.h"

namespace gradwire::rref {

inline constexpr const char* kAddFunction = "rref.add";          // AddFork
inline constexpr const char* kDropFunction = "rref.drop";        // DropFork
inline constexpr const char* kFetchFunction = "rref.fetch";      // Fetch
inline constexpr const char* kConfirmFunction = "rref.confirm";  // Confirm

// Of the layer's own bookkeeping: no shutdown waits for them.
inline constexpr const char* kReconcileFunction = "rref.reconcile";  // Reconcile; the reply is the gifts
inline constexpr const char* kProbeFunction = "rref.probe";          // does nothing: it finds out who is there

struct Ids {
  RRefId rref;
  ForkId fork;
  WorkerId holder;
};

// Bits of an unsigned number pass through int64 unchanged.
using IdTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

inline int64_t ToBits(uint64_t value) { return static_cast<int64_t>(value); }
inline WorkerId WorkerOf(int64_t bits) { return WorkerId::FromPacked(static_cast<uint64_t>(bits)); }

inline Payload EncodeIds(RRefId rref, ForkId fork, WorkerId holder) {
  return EncodeValue(IdTuple(ToBits(rref.creator.packed()), ToBits(rref.number), ToBits(fork.creator.packed()),
                             ToBits(fork.number), ToBits(holder.packed())));
}

inline Ids DecodeIds(const Payload& payload) {
  const auto [rref, rref_number, fork, fork_number, holder] = DecodeValue<IdTuple>(payload);
  return {.rref = {WorkerOf(rref), static_cast<uint64_t>(rref_number)},
          .fork = {WorkerOf(fork), static_cast<uint64_t>(fork_number)},
          .holder = WorkerOf(holder)};
}

struct Question {
  WorkerId owner;
  WorkerId about;
};

inline Payload EncodeQuestion(const Question& question) {
  return EncodeValue(std::tuple(ToBits(question.owner.packed()), ToBits(question.about.packed())));
}

inline Question DecodeQuestion(const Payload& payload) {
  const auto [owner, about] = DecodeValue<std::tuple<int64_t, int64_t>>(payload);
  return {WorkerOf(owner), WorkerOf(about)};
}

// A gift is three numbers: the maker of each is the one who was asked about.
inline Payload EncodeGifts(const std::vector<Gift>& gifts) {
  std::vector<int64_t> numbers;
  for (const Gift& gift : gifts) {
    numbers.push_back(ToBits(gift.rref.creator.packed()));
    numbers.push_back(ToBits(gift.rref.number));
    numbers.push_back(ToBits(gift.fork.number));
  }
  return EncodeValue(numbers);
}

inline std::vector<Gift> DecodeGifts(const Payload& payload, WorkerId about) {
  const auto numbers = DecodeValue<std::vector<int64_t>>(payload);
  std::vector<Gift> gifts;
  for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
    gifts.push_back({{WorkerOf(numbers[i]), static_cast<uint64_t>(numbers[i + 1])},
                     {about, static_cast<uint64_t>(numbers[i + 2])}});
  }
  return gifts;
}

}  // namespace gradwire::rref
