// Rendezvous: how the workers of a fixed group find each other through a store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/store.h"
#include "rpc/members.h"

namespace gradwire {

// Throws Error(kInvalid) unless `name` is letters, digits, "_", ":", "-", and 1 to 127 of them.
void CheckWorkerName(const std::string& name);

// A member as it stands in a store. Decoding throws Error(kInvalid).
std::string EncodeMember(const rpc::Member& member);
rpc::Member DecodeMember(const std::string& record);

std::string RandomJobKey();

// Says in the store whether its workers form a fixed group or an open one. Throws Error(kInvalid) when it says the
// other.
void MarkGroup(Store& store, bool is_open);

class Rendezvous {
 public:
  // `limit` 0: none. It runs from here on.
  Rendezvous(Store& store, uint32_t rank, uint32_t world_size, std::chrono::milliseconds limit);

  // A secret of this job, the same for all ranks: drawn by whoever comes first.
  std::string JobKey();

  // Publishes the own record and waits for all others. Throws Error(kTimedOut) that names the missing ranks, and
  // kInvalid on every rank when two have one name.
  std::vector<rpc::Member> Exchange(const rpc::Member& self);

  // Waits until all have said this. Call it once the members are known to whoever answers their connections: nobody
  // goes on, and perhaps away with the store, before. `is_gone` says whether nobody listens any more where a rank did:
  // then all fail at once, with Error(kDisconnected).
  void AwaitAllReady(const std::function<bool(uint32_t rank)>& is_gone);

 private:
  std::chrono::milliseconds Left() const;
  std::string Key(const std::string& name) const { return prefix_ + name; }
  [[noreturn]] void ThrowMissing(const std::vector<uint32_t>& missing) const;

  Store& store_;
  const uint32_t rank_;
  const uint32_t world_size_;
  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point begin_;
  std::string prefix_;
};

}  // namespace gradwire
