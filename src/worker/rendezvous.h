// Rendezvous: how the workers of a fixed group find each other through a store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
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

// Rank 0 begins an attempt to meet, and whoever else is there answers it: nothing that a process which has ended left
// in the store counts, whichever ranks began before, and how often. Who has found no group yet answers the next
// attempt, too.
class Rendezvous {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t world_size = 0;
    std::chrono::milliseconds limit{0};            // 0: none. It runs from the construction on.
    std::chrono::milliseconds tell_every{30'000};  // so often who waits says for whom, as a warning
  };
  Rendezvous(Store& store, Options options);

  // A secret of those who share the store: drawn by whoever comes first.
  std::string JobKey();

  // Publishes the own record and waits until rank 0 has found all. Throws on every rank: Error(kTimedOut) that names
  // the missing ranks, kInvalid when two have one name.
  std::vector<rpc::Member> Exchange(const rpc::Member& self);

  // Waits until all have said this. Call it once the members are known to whoever answers their connections: nobody
  // goes on, and perhaps away with the store, before. `is_gone` says whether nobody listens any more where a rank did:
  // then all fail at once, with Error(kDisconnected).
  void AwaitAllReady(const std::function<bool(uint32_t rank)>& is_gone);

 private:
  std::vector<rpc::Member> Collect(const rpc::Member& self);
  std::vector<rpc::Member> Present(const rpc::Member& self, bool leaves_out);
  std::vector<rpc::Member> Follow(const rpc::Member& self);
  bool Answer(const rpc::Member& self);
  std::optional<std::string> Await(const std::string& key, bool is_open);
  std::vector<uint32_t> Missing(bool is_open);
  std::chrono::milliseconds Left() const;
  std::string Key(const std::string& name) const { return KeyOf(attempt_, name); }
  static std::string KeyOf(int64_t attempt, const std::string& name);
  std::string WorkerKey(uint32_t rank) const { return Key("worker/" + std::to_string(rank)); }
  std::string Waiting(const std::vector<uint32_t>& missing) const;

  Store& store_;
  const Options options_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point tell_at_;
  int64_t attempt_ = 0;  // the newest that is known; 0: none
};

}  // namespace gradwire
