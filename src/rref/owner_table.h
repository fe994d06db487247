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
#include "base/rule.h"
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

// Workers have been lost, and a value may hang on what they passed on (rule 8): BeginRounds() is to follow, with the
// workers of the group.
struct NeedMembers {};

// `whom` is to be asked which forks it holds that `about` made; Reconciled() is to follow.
struct AskReconcile {
  WorkerId whom;
  WorkerId about;
};

// What the table knows of a reference of which it has been told.
enum class Standing : uint8_t {
  kHere,     // created, its value made, pending or failed
  kNotYet,   // its creating call is still on its way
  kNoLonger  // freed; every use is an error (see WhyNoLonger)
};

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/rref_explore.h).
struct OwnerRules {
  GRADWIRE_RULE kRememberEarlyDrops = true;     // rule 6: tombstones
  GRADWIRE_RULE kForgetWhatIsGone = true;       // rule 7: nothing is kept about what is no longer here
  GRADWIRE_RULE kFetchWaitsForCreation = true;  // rule 7
  GRADWIRE_RULE kFetchKeepsTheValue = true;     // a value is not freed under an unanswered fetch
  GRADWIRE_RULE kConfirmWaitsForAdd = true;     // rule 4

  // rule 8
  GRADWIRE_RULE kForgetForksOfTheLost = true;        // nobody else drops them
  GRADWIRE_RULE kDoubtWhatTheLostHeld = true;        // such a value is not freed for now
  GRADWIRE_RULE kDoubtLateForks = true;              // nor one that is shared with a lost worker later
  GRADWIRE_RULE kRefuseForksForTheLost = true;       // that share is not counted
  GRADWIRE_RULE kForgetDropsAwaitingTheLost = true;  // tombstones for adds that do not come any more
  GRADWIRE_RULE kDropsMeetAnswers = true;            // a drop may overtake the answer that names its fork
  GRADWIRE_RULE kDoubtWhoHasNotAnswered = true;      // when it is lost too
  GRADWIRE_RULE kAwaitAllAnswers = true;             // of everyone who lives
  GRADWIRE_RULE kAwaitAllRounds = true;              // about everyone who is lost
  GRADWIRE_RULE kAskAboutEarlierLosses = true;       // of whom nothing was known to hang on
  GRADWIRE_RULE kAnswersReplace = true;              // forks that never reached their holder go
};

// A pure state machine: each event changes the table and returns what is to be done about it. No locks: the caller
// holds one mutex around each event, and carries the actions out after unlock, in order. Nothing a user wrote is run or
// destroyed inside. Copyable, so that states can be explored. Rule numbers are those of docs/rref.md.
template <class Rules>
class BasicOwnerTable {
 public:
  using Action = std::variant<Free, AnswerFetch, AnswerConfirm, NeedMembers, AskReconcile>;
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

  // `DropFork` arrived from `holder` (rules 5, 6).
  [[nodiscard]] Actions DropFork(RRefId rref, ForkId fork, WorkerId holder);

  // A handle on the owner itself: taken in the header step of a message that names the reference (rule 2). Counts for
  // kNotYet too, and must then be released all the same; not for kNoLonger.
  [[nodiscard]] Standing Hold(RRefId rref);
  [[nodiscard]] Actions Release(RRefId rref);

  // Answered when the creation has ended, at once if it has.
  [[nodiscard]] Actions Fetch(RRefId rref, Waiter waiter);

  // Answered when the fork is registered, at once if it is.
  [[nodiscard]] Actions Confirm(RRefId rref, ForkId fork, Waiter waiter);

  // A worker is lost for `why`, and its last message has been handled (rule 8): what it held is forgotten, and what it
  // alone could have brought is not waited for. Values that it may have passed on are in doubt: kept until all others
  // have said what they hold of them.
  [[nodiscard]] Actions PeerLost(WorkerId peer, std::shared_ptr<const Failure> why);

  // After NeedMembers: who is in the group. This worker and lost ones may be among them.
  [[nodiscard]] Actions BeginRounds(const std::vector<WorkerId>& members);

  // The answer of `from`, in any order with later messages of it. Ignored unless it is awaited.
  [[nodiscard]] Actions Reconciled(WorkerId from, WorkerId about, const std::vector<Gift>& gifts);

  // This worker stops, for good (C1): every wait fails with `why`, now and later, every value comes back to be
  // destroyed, and nothing is registered any more. Handles may outlive it.
  [[nodiscard]] Actions Close(const std::shared_ptr<const Failure>& why);

  Standing standing(RRefId rref) const;
  // The error of a use of what is no longer here.
  std::shared_ptr<const Failure> WhyNoLonger(RRefId rref) const;
  bool has_fork(RRefId rref, ForkId fork) const;
  size_t fork_count(RRefId rref) const;
  size_t hold_count(RRefId rref) const;
  bool in_doubt(RRefId rref) const;

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
    size_t waiting = 0;   // unanswered fetches and confirms
    size_t in_doubt = 0;  // entries that are kept for what a lost worker may have passed on
    size_t awaited = 0;   // answers of others about lost workers

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
    bool in_doubt = false;  // a lost worker may have passed it on (rule 8)
    std::vector<Waiter> fetches;
    std::vector<std::pair<ForkId, Waiter>> confirms;
  };
  using Entries = std::unordered_map<RRefId, Entry>;

  Entry* FindOrExpect(RRefId rref);
  void Register(Entry& entry, ForkId fork, WorkerId holder, Actions& actions);
  void Settle(RRefId rref, Actions& actions);
  static void Encode(const Entry& entry, std::string& out);

  void Registered(Entry& entry, ForkId fork, Actions& actions);
  bool IsLost(WorkerId peer) const { return lost_.contains(peer); }
  bool AnswersComeAbout(WorkerId peer) const { return unasked_.contains(peer) || rounds_.contains(peer); }
  bool IsAwaited(WorkerId whom, WorkerId about) const {
    const auto round = rounds_.find(about);
    return round != rounds_.end() && round->second.contains(whom);
  }
  bool ForgetLost(WorkerId peer, RRefId rref, Entry& entry, Actions& actions);
  void Doubt(Entry& entry, Actions& actions);
  void NeedRounds(Actions& actions);
  void EndRounds(Actions& actions);
  void EndDoubts(const std::set<WorkerId>& settled, Actions& actions);

  WorkerId self_;
  Entries entries_;
  std::unordered_map<WorkerId, uint64_t> created_up_to_;  // highest number that each creator has created here (rule 7)

  // Rule 8. Lost workers stay in lost_, and in unasked_ until something hangs on them.
  std::map<WorkerId, std::shared_ptr<const Failure>> lost_;  // why
  std::set<WorkerId> unasked_;
  bool needs_members_ = false;                     // BeginRounds() is to come
  std::map<WorkerId, std::set<WorkerId>> rounds_;  // about whom -> whose answers are awaited
  std::shared_ptr<const Failure> closed_;          // why, after Close
};

using OwnerTable = BasicOwnerTable<OwnerRules>;
extern template class BasicOwnerTable<OwnerRules>;

// The error of each use of a value that was freed, and of one whose creating call was lost with its creator.
Failure Gone(RRefId rref);
Failure NeverMade(RRefId rref, const Failure& loss);

}  // namespace gradwire::rref
