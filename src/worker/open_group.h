// OpenGroup: a group whose workers come and go. They find each other through a store and tell each other directly.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/store.h"
#include "rpc/rpc.h"

namespace gradwire {

// One per Worker of such a group.
class OpenGroup {
 public:
  // Registers its function. Attach() before the first call.
  OpenGroup(std::shared_ptr<Store> store, Functions& internal_functions);

  // A secret of this group, the same for all: drawn by whoever comes first.
  std::string JobKey();

  void Attach(rpc::Rpc* rpc) { rpc_ = rpc; }

  // Publishes the own record and returns when all who are there know this worker, and it knows them. `limit` 0: none.
  // Throws Error(kInvalid) when another has the name or the rank.
  void Join(const rpc::Member& self, std::chrono::milliseconds limit);

  // Waits until this worker has no work left, its own or for others. `timeout` 0: none; Error(kTimedOut).
  void Drain(std::chrono::milliseconds timeout);

  // Gives up name and rank. Throws nothing: the store may have gone before.
  void Leave() noexcept;

  void OnPeerEnded(const rpc::Peer& peer) { rpc_->members().Remove(peer.id); }

 private:
  void Take(const std::string& key, const std::string& what);
  std::optional<rpc::Member> RecordOf(int64_t place, std::chrono::milliseconds limit);
  void TellAll(const std::vector<rpc::Member>& others, const std::string& record, std::chrono::milliseconds limit);

  const std::shared_ptr<Store> store_;
  rpc::Rpc* rpc_ = nullptr;
  std::string own_;                 // what stands for this worker under the keys that it has taken
  std::vector<std::string> taken_;  // those keys
  std::string record_key_;
};

}  // namespace gradwire
