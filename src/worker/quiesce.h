// Quiesce: the agreement of a fixed group that no work is left (M2). The lowest rank that is not gone leads.
//
// A follower tells its leader that it has arrived in a round, and tells the next one when that leader is gone. Who has
// passed a round answers an arrival in it with its end: a leader may die having told only some.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/event.h"
#include "rpc/rpc.h"

namespace gradwire {

// One per Worker. Each call of Wait() is one round; all workers make the same number of rounds.
class Quiesce {
 public:
  // Registers its functions. Attach() before the first call.
  explicit Quiesce(Functions& internal_functions);

  // `extra` is summed over the group with the counts: quiet also means that it does not change (forks held).
  void Attach(rpc::Rpc* rpc, std::function<uint64_t()> extra);

  // Opens the session with the leader: it sees a worker's death by the session's end, even of one that never calls it.
  void Join();

  // Waits until every live worker is in its round and the group is quiet, whoever is lost meanwhile. `timeout` 0: none.
  // Throws Error(kTimedOut) that names who is missing.
  void Wait(std::chrono::milliseconds timeout);

  // A peer's session has ended: it is waited for no longer.
  void OnPeerEnded(uint32_t rank);
  // Nobody waits for one that lives but cannot be reached, as long as it cannot. May run under a role.
  void OnPeerReach(uint32_t rank, bool reached);

  // Ends a Wait() that is under way, and all later ones, with `why`.
  void Abandon(const std::string& why);

 private:
  using Moment = std::optional<TimePoint>;
  struct Wave {
    uint64_t sent = 0, handled = 0, extra = 0;
    bool idle = true;
    bool operator==(const Wave&) const = default;
  };

  void RegisterFunctions(Functions& functions);
  rpc::Peer Leader() const;  // perhaps this worker
  bool Leads() const { return Leader().id == rpc_->self().id; }
  bool IsAway(uint32_t rank) const;  // with the mutex held
  uint64_t ReachedAgain() const;
  std::vector<rpc::Peer> LivePeers() const;
  void OnArrived(IncomingCall& call);
  // False: another leads. `end` has not passed.
  bool Lead(uint32_t round, Moment end);
  bool Follow(const rpc::Peer& leader, uint32_t round, Moment end);
  void AwaitArrivals(uint32_t round, Moment end);
  bool Finished(uint32_t round) const;
  bool AnyAway() const;
  void Finish(uint32_t round);  // and tells all who have arrived here
  Wave Collect(const std::vector<rpc::Peer>& peers, Moment end);
  Wave Own() const;
  std::vector<std::string> Missing(uint32_t round) const;
  [[noreturn]] void ThrowBusy();
  // False when `end` has passed first.
  bool AwaitChange(const std::shared_ptr<Event>& change, Moment end);
  std::shared_ptr<Event> NextChange();
  void NoteChange();
  void Tell(const rpc::Peer& to, const char* function, uint32_t round);

  rpc::Rpc* rpc_ = nullptr;
  std::function<uint64_t()> extra_;

  mutable std::mutex mutex_;
  uint32_t round_ = 0;                    // of this worker
  std::map<uint32_t, uint32_t> arrived_;  // rank -> round: what others have told this worker
  std::set<uint32_t> gone_;               // ranks whose session has ended
  std::set<uint32_t> unreached_;          // ranks that cannot be reached now
  uint64_t reached_again_ = 0;            // how often that has ended for one
  uint32_t finished_round_ = 0;           // the highest that is known to be over
  std::string abandoned_;                 // why, once it is
  std::shared_ptr<Event> change_ = std::make_shared<Event>();
};

}  // namespace gradwire
