// OpenGroup: a group whose workers come and go. They find each other through a store and tell each other directly.
//
// A worker that has crashed leaves its name and rank taken. Who wants one of them asks at the address that stands with
// it: where nobody answers for that worker, the newcomer takes its place, and all others learn so from the newcomer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/store.h"
#include "rpc/rpc.h"
#include "worker/parts.h"

namespace gradwire {

// One per Worker of such a group.
class OpenGroup {
 public:
  // Registers its functions. Attach() before the first call. `parts` outlive this.
  OpenGroup(std::shared_ptr<Store> store, const WorkerParts& parts, Functions& internal_functions);

  // A secret of this group, the same for all: drawn by whoever comes first.
  std::string JobKey();

  void Attach(rpc::Rpc* rpc) { rpc_ = rpc; }

  // Publishes the own record and returns when all who are there know this worker, and it knows them. `limit` 0: none.
  // Throws Error(kInvalid) when another has the name or the rank, and answers or only says nothing.
  void Join(const rpc::Member& self, std::chrono::milliseconds limit);

  // Waits until this worker has no work left, its own or for others. `timeout` 0: none; Error(kTimedOut).
  void Drain(std::chrono::milliseconds timeout);

  // Gives up name and rank. Throws nothing: the store may have gone before.
  void Leave() noexcept;

 private:
  void Take(const std::string& key, const std::string& what);
  void RefuseUnlessGone(const rpc::Member& holder, const std::string& what) const;
  std::optional<rpc::Member> RecordOf(int64_t place, std::chrono::milliseconds limit);
  void TellAll(const std::vector<rpc::Member>& others, std::chrono::milliseconds limit);

  const std::shared_ptr<Store> store_;
  const WorkerParts& parts_;
  rpc::Rpc* rpc_ = nullptr;
  std::string job_key_;
  std::string own_;                 // the record of this worker, under the keys that it has taken too
  std::vector<std::string> taken_;  // those keys
  std::string record_key_;
};

}  // namespace gradwire
