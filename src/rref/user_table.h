// UserTable: the forks that this worker holds of values that live on other workers (docs/rref.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "rref/value.h"

namespace gradwire::rref {

// Messages for the owner. To be queued in the same send step or critical section as the event that asked for them, so
// that no later message of this worker to that owner overtakes them (rules 4, 5).
struct SendAddFork {
  WorkerId owner;
  RRefId rref;
  ForkId fork;
  WorkerId holder;
};
struct SendDropFork {
  WorkerId owner;
  RRefId rref;
  ForkId fork;
};
struct SendConfirm {
  WorkerId owner;
  RRefId rref;
  ForkId fork;
};

// Whether `peer` lives is to be found out: PeerLost() is to follow if it does not.
struct Probe {
  WorkerId peer;
};

// The answer to a Reconcile.
struct AnswerReconcile {
  Waiter waiter = 0;
  std::vector<Gift> gifts;
};

// What became of a reference that has arrived.
enum class Arrival : uint8_t {
  kTaken,
  kFromLost,  // its maker is lost, as far as owners have been told: the fork would count nowhere
  kRefused    // the fork is here already: the peer broke the rules
};

// A pure state machine, used like OwnerTable: one mutex around each event, the actions after it, in order. One fork is
// one handle; all copies of the handle in this process share it. Rule numbers are those of docs/rref.md.
class UserTable {
 public:
  using Action = std::variant<SendDropFork, SendConfirm, AnswerConfirm, Probe, AnswerReconcile>;
  using Actions = std::vector<Action>;

  // How far this worker knows that the owner has the fork in its table.
  enum class State : uint8_t {
    kCreating,     // its creating call has not been answered
    kUnconfirmed,  // nobody has asked yet
    kAsking,       // a Confirm is on its way
    kConfirmed
  };

  struct Fork {
    RRefId rref;
    WorkerId owner;
    State state = State::kUnconfirmed;
    std::shared_ptr<const Failure> creation_failure;  // comes back at each use
    std::vector<Waiter> waiting;                      // for the confirmation
  };

  // Send step of a creating call (rule 1).
  void Created(RRefId rref, ForkId fork, WorkerId owner);

  // The creating call was answered. A failure is the creation's own: the owner has entry and fork all the same.
  [[nodiscard]] Actions CreationReplied(ForkId fork, std::shared_ptr<const Failure> failure = nullptr);

  // It ended without an answer (timed out, lost). Whether the owner has the fork is not known, and a Confirm will ask.
  [[nodiscard]] Actions CreationUnanswered(ForkId fork, std::shared_ptr<const Failure> failure);

  // Header step of a message that carries a reference. From the owner itself it is confirmed at once (rule 3), from
  // another user it is not (rule 4). No change unless kTaken.
  [[nodiscard]] Arrival Received(RRefId rref, ForkId fork, WorkerId owner, WorkerId from);

  // Send step of a message that carries the reference to `holder`, another than the owner: what to queue for the owner
  // before that message (rule 4). Nothing when `fork` was dropped: the message must not carry it.
  [[nodiscard]] std::optional<SendAddFork> Shared(ForkId fork, ForkId new_fork, WorkerId holder) const;

  // Answers once the owner is known to have the fork; asks it when nothing else will tell.
  [[nodiscard]] Actions Confirm(ForkId fork, Waiter waiter);

  // The owner's answer, or the failure to get one; a later Confirm asks again after that.
  [[nodiscard]] Actions ConfirmReplied(ForkId fork, std::shared_ptr<const Failure> failure = nullptr);

  // The last copy of the handle is gone (rule 5). Dropping twice does nothing.
  [[nodiscard]] Actions Dropped(ForkId fork);

  // `owner` asks which forks of its values this worker holds that `about` made (rule 8). Answered once this worker has
  // lost that one too: until then more may come from it.
  [[nodiscard]] Actions Reconcile(WorkerId owner, WorkerId about, Waiter waiter);

  // The session with a worker has ended, and its last message has been handled; or there never was one, nor will be.
  // What it asked is answered too, to let go of the question.
  [[nodiscard]] Actions PeerLost(WorkerId peer);

  // Null for a fork that is not here. Valid until the next event.
  const Fork* Find(ForkId fork) const;

  struct Counts {
    size_t forks = 0;
    size_t creating = 0;  // creations without an answer so far
    size_t waiting = 0;   // for confirmations
    size_t asked = 0;     // questions about workers that are not lost here

    bool operator==(const Counts&) const = default;
  };
  Counts counts() const;

  std::vector<ForkId> Forks() const;  // sorted

  // Equal exactly for equal states; the failures themselves do not count.
  std::string Encoding() const;

 private:
  Actions Ended(ForkId fork, State state, std::shared_ptr<const Failure> wait_failure);

  std::vector<Gift> Gifts(WorkerId owner, WorkerId maker) const;

  struct Question {
    WorkerId owner;
    WorkerId about;
    Waiter waiter;
  };
  std::unordered_map<ForkId, Fork> forks_;
  std::set<WorkerId> lost_;
  std::vector<Question> questions_;
};

}  // namespace gradwire::rref
