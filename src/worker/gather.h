// Gather: one value from each of several workers to all of them, by way of the one whose name comes first. All of them
// get the values, or all an error, but for the loss of the leader while it answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/event.h"
#include "gradwire/call.h"
#include "rpc/rpc.h"
#include "worker/gather_parts.h"

namespace gradwire {

// One per Worker. Thread-safe. Several gatherings of the same workers are told apart by their order: all of them must
// make them in the same one. A worker that has started again is another worker: with it counting starts anew.
class Gather {
 public:
  // Registers its functions. Attach() before the first call.
  explicit Gather(Functions& internal_functions);
  void Attach(rpc::Rpc* rpc) { rpc_ = rpc; }

  // What each of `names` has passed, by name; no names: all members. Blocks until all have called this. `timeout`
  // negative: that of calls; 0: none; the deadline of the call that this thread serves binds too. Throws
  // Error(kInvalid) when this worker is not among them, kUnknownWorker, kTimedOut that names who has not come,
  // kDisconnected that names who is gone.
  GatherParts All(Payload value, std::vector<std::string> names, std::chrono::milliseconds timeout,
                  std::string shown_as = {});

  // Gatherings of this worker and others fail, and so do all later ones. May run under a role.
  void OnPeerEnded(const rpc::Peer& peer);
  // Gatherings with one that cannot be reached fail, as long as it cannot: `why`. May run under a role.
  void OnPeerReach(const rpc::Peer& peer, const std::optional<Failure>& why);
  // Whose parts are waited for. May run under a role.
  WorkerSet Awaited() const;
  // The same for all gatherings: this worker is in its group no more.
  void OnFenced(const Failure& why);

  // Ends all gatherings here that are under way, for all who wait in them, and all later ones. Not under a role.
  void Abandon(const std::string& why);

  size_t open() const;  // gatherings that some have begun and this worker, their leader, has not seen the end of

 private:
  using Key = GatherKey;
  using Who = Key::first_type::value_type;
  using Answer = UniqueFunction<void(const Outcome&)>;
  // On the leader.
  struct Gathering {
    GatherParts parts;
    std::vector<Answer> waiting;
    std::optional<Failure> failure;  // given up; stays until all have heard of it
    Gathering Fail(const Failure& why);  // the parts, which nobody needs any more, and who is to be told
  };
  // On each that waits.
  struct Wait {
    Event over;
    std::optional<Outcome> outcome;
  };

  void OnPart(const std::shared_ptr<IncomingCall>& call);
  Key NextKey(std::vector<std::string> names);
  std::optional<Duration> Limit(std::chrono::milliseconds timeout) const;
  CallHandle SendPart(const Key& key, const Payload& value, std::string shown_as, Completion answer);
  void Add(const Key& key, const std::string& name, Payload part, Answer answer);
  std::optional<Failure> WhyNever(const Key& key) const;
  std::optional<Failure> WhyNotNow(const Key& key) const;
  // For all who wait in it and all who are still to come: why(gathering), with the mutex held.
  template <class F>
  void FailAll(const Key& key, F why);
  void FailHopeless();
  // `name` has waited for `ms`.
  void GiveUp(const Key& key, const std::string& name, int64_t ms);
  // Has the leader do that: `wait` is over when this returns.
  void AskToGiveUp(const Key& key, int64_t ms, const CallHandle& call, Wait& wait);
  void Watch(const Who& who);

  rpc::Rpc* rpc_ = nullptr;

  mutable std::mutex mutex_;  // guards all below; a leaf
  std::map<std::vector<Who>, int64_t> numbers_;
  std::map<Key, Gathering> gatherings_;
  std::set<WorkerId> gone_;
  std::map<WorkerId, Failure> unreached_;
  std::set<WorkerId> watched_;  // have a session with this worker, which ends when they do
  std::optional<Failure> abandoned_;
};

}  // namespace gradwire
