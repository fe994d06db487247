// OwnerTable: the values of this worker that references name, and who holds them (docs/rref.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "rref/value.h"

namespace gradwire::rref {

// A value that nothing holds any more. Destroy it outside the lock, on the pool (O2).
struct Free {
  std::shared_ptr<const Value> value;
};

// The answer to a Fetch: never pending.
struct AnswerFetch {
  Waiter waiter = 0;
  Result result;
};

// What the table knows of a reference of which it has been told.
enum class Standing : uint8_t {
  kHere,     // created, its value made, pending or failed
  kNotYet,   // its creating call is still on its way
  kNoLonger  // freed; every use is an error (see Gone)
};

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/rref_explore.h).
struct OwnerRules {
  static constexpr bool kRememberEarlyDrops = true;     // rule 6: tombstones
  static constexpr bool kForgetWhatIsGone = true;       // rule 7: nothing is kept about what is no longer here
  static constexpr bool kFetchWaitsForCreation = true;  // rule 7
  static constexpr bool kFetchKeepsTheValue = true;     // a value is not freed under an unanswered fetch
  static constexpr bool kConfirmWaitsForAdd = true;     // rule 4
};

// A pure state machine: each event changes the table and returns what is to be done about it. No locks: the caller
// holds one mutex around each event, and carries the actions out after unlock, in order. Nothing a user wrote is run or
// destroyed inside. Copyable, so that states can be explored. Rule numbers are those of docs/rref.md.
template <class Rules>
class BasicOwnerTable {
 public:
  using Action = std::variant<Free, AnswerFetch, AnswerConfirm>;
  using Actions = std::vector<Action>;

  explicit BasicOwnerTable(WorkerId self) : self_(self) {}

  // Header step of a creating call from `holder`; a call that is refused or too late has it too (C2), and SetValue with
  // its failure follows. Nothing, and no change, for an id that `holder` may not create: another's, or one not above
  // those it created before (O5).
  [[nodiscard]] std::optional<Actions> Create(RRefId rref, ForkId fork, WorkerId holder);

  // Send step: a value of this worker's program when it is first shared, or the result of a call to itself. The entry
  // starts with one hold, that of the handle.
  void CreateLocal(RRefId rref);

  // The creation has ended; once for each. Answers those who wait. A value that nothing holds any more comes back.
  [[nodiscard]] Actions SetValue(RRefId rref, Result result);

  // `AddFork` arrived from another user (rule 4).
  [[nodiscard]] Actions AddFork(RRefId rref, ForkId fork, WorkerId holder);

  // Send step of a message of this worker that carries the reference to `holder` (rule 3). kNoLonger, when the handle
  // was dropped by force meanwhile: not registered, and the message must not carry it.
  [[nodiscard]] Standing GiveFork(RRefId rref, ForkId fork, WorkerId holder);

  // `DropFork` arrived (rules 5, 6).
  [[nodiscard]] Actions DropFork(RRefId rref, ForkId fork);

  // A handle on the owner itself: taken in the header step of a message that names the reference (rule 2). Counts for
  // kNotYet too, and must then be released all the same; not for kNoLonger.
  [[nodiscard]] Standing Hold(RRefId rref);
  [[nodiscard]] Actions Release(RRefId rref);

  // Answered when the creation has ended, at once if it has.
  [[nodiscard]] Actions Fetch(RRefId rref, Waiter waiter);

  // Answered when the fork is registered, at once if it is.
  [[nodiscard]] Actions Confirm(RRefId rref, ForkId fork, Waiter waiter);

  // A worker is gone: what only it could have brought does not come. Waits for its creations and for its forks fail.
  [[nodiscard]] Actions PeerLost(WorkerId peer);

  // This worker stops, for good (C1): every wait fails with `why`, now and later, every value comes back to be
  // destroyed, and nothing is registered any more. Handles may outlive it.
  [[nodiscard]] Actions Close(const std::shared_ptr<const Failure>& why);

  Standing standing(RRefId rref) const;
  bool has_fork(RRefId rref, ForkId fork) const;
  size_t fork_count(RRefId rref) const;
  size_t hold_count(RRefId rref) const;

  // A value that other workers still hold: after shutdown has dropped the handles of all programs, a leak (R5).
  struct Held {
    RRefId rref;
    Standing standing = Standing::kHere;
    std::map<ForkId, WorkerId> forks;  // of other workers
  };
  std::vector<Held> HeldByOthers() const;  // sorted by rref

  struct Counts {
    size_t entries = 0;     // all that the table remembers
    size_t with_forks = 0;  // entries that other workers hold
    size_t pending = 0;     // created, value not made
    size_t not_yet = 0;     // named by messages, not created
    size_t forks = 0;
    size_t holds = 0;
    size_t tombstones = 0;
    size_t waiting = 0;  // unanswered fetches and confirms

    bool operator==(const Counts&) const = default;
  };
  Counts counts() const;

  // Equal exactly for equal states; the values themselves do not count.
  std::string Encoding() const;

 private:
  struct Entry {
    bool created = false;
    Result result;
    std::map<ForkId, WorkerId> forks;  // fork -> who holds it
    std::set<ForkId> tombstones;       // dropped before they were added (rule 6)
    size_t holds = 0;
    std::vector<Waiter> fetches;
    std::vector<std::pair<ForkId, Waiter>> confirms;
  };
  using Entries = std::unordered_map<RRefId, Entry>;

  Entry* FindOrExpect(RRefId rref);
  std::shared_ptr<const Failure> WhyNoLonger(RRefId rref) const;
  void Register(Entry& entry, ForkId fork, WorkerId holder, Actions& actions);
  void Settle(RRefId rref, Actions& actions);
  static void Encode(const Entry& entry, std::string& out);

  WorkerId self_;
  Entries entries_;
  static constexpr uint64_t kLost = UINT64_MAX;
  bool IsLost(WorkerId peer) const;

  // Highest number that each creator has created here (rule 7); kLost for those that will create nothing any more.
  std::unordered_map<WorkerId, uint64_t> created_up_to_;
  std::shared_ptr<const Failure> closed_;  // why, after Close
};

using OwnerTable = BasicOwnerTable<OwnerRules>;
extern template class BasicOwnerTable<OwnerRules>;

// The error of each use of a value that was freed.
Failure Gone(RRefId rref);

}  // namespace gradwire::rref
