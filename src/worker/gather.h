// Gather: one value from each of several workers to all of them, by way of the one whose name comes first.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/event.h"
#include "gradwire/call.h"
#include "rpc/rpc.h"

namespace gradwire {

// One per Worker. Thread-safe. Several gatherings of the same workers are told apart by their order: all of them must
// make them in the same one.
class Gather {
 public:
  using Parts = std::map<std::string, Payload>;

  // Registers its function. Attach() before the first call.
  explicit Gather(Functions& internal_functions);
  void Attach(rpc::Rpc* rpc) { rpc_ = rpc; }

  // What each of `names` has passed, by name; no names: all members. Blocks until all have called this. Throws
  // Error(kInvalid) when this worker is not among them, kTimedOut naming who has not come, kDisconnected.
  Parts All(Payload value, std::vector<std::string> names, std::chrono::milliseconds timeout);

  // Gatherings that wait for this worker fail.
  void OnPeerEnded(const rpc::Peer& peer);

 private:
  using Key = std::pair<std::vector<std::string>, int64_t>;  // names in order, and how many there were before
  using Answer = UniqueFunction<void(const Outcome&)>;
  // On the leader.
  struct Gathering {
    Parts parts;
    std::vector<Answer> waiting;
    std::optional<Failure> failure;  // no longer waited for; stays until all have heard of it
  };

  int64_t NextNumber(const std::vector<std::string>& names);
  void Add(const Key& key, const std::string& name, Payload part, Answer answer);
  void Fail(const Key& key, const Failure& failure);
  Failure TimedOut(const Key& key, std::chrono::milliseconds timeout) const;
  Parts Lead(const Key& key, Payload value, std::chrono::milliseconds timeout);

  rpc::Rpc* rpc_ = nullptr;

  mutable std::mutex mutex_;  // guards all below; a leaf
  std::map<std::vector<std::string>, int64_t> numbers_;
  std::map<Key, Gathering> gatherings_;
};

}  // namespace gradwire
