// Membership: one worker's part in agreeing on who is in the group (M1, docs/membership.md). A pure state machine: it
// is told what happens, time included, and answers with what to do.
//
// All workers go from view to view: (epoch, members), one for each epoch. The coordinator is the most senior worker
// that is neither gone nor suspected, as far as each knows; its rounds decide on the next view by ballots, so that two
// which act at once do no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/worker_set.h"
#include "wire/group.h"

namespace gradwire::rpc {

// What becomes of the sides of a group that a broken network has parted.
enum class Partition : uint8_t {
  kMajority,  // at most one goes on
  kEvery,     // each goes on by itself: for independent clients around servers
};

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/membership_explore.h).
struct MembershipRules {
  bool needs_quorum = true;
  bool tie_to_senior = true;           // half of a view decides only with the most senior of those that may live
  bool gone_do_not_count = true;       // who is proved to be gone is not waited for in a quorum
  bool counts_the_view = true;         // more than half is half of the view, not of the living
  bool stuck_as_gone = true;           // a frozen member counts for the quorum as one that is gone
  bool dark_is_not_stuck = true;       // but not if its machine was silent before
  bool promises = true;                // whoever votes answers no lower ballot any more
  bool asks_acceptance = true;         // a change is accepted by a quorum before it is decided
  bool awaits_acceptances = true;      // all voters are waited for
  bool inherits = true;                // what a voter has accepted goes on
  bool counts_reached = true;          // who is reached by a voter is not lost
  bool break_is_suspicion = true;      // and not yet a loss
  bool sleep_ends_round = true;        // whoever has slept gives its round up
  bool doubts_itself = true;           // and needs more than half until it is answered
  bool tells_the_lost = true;          // a view goes to those that it has lost, too
  bool newer_views_only = true;        // a view that is not newer changes nothing
  bool checks_refusals = true;         // a refusal counts only with a newer epoch, by one that is not removed
  bool one_rank_one_worker = true;     // a newcomer waits for the loss of who has its name or rank
  bool operator==(const MembershipRules&) const = default;
};

// No locks: the caller holds one mutex around each event, and carries the actions out after unlock, in order. Copyable,
// so that states can be explored. Once its part has ended (ended()) nothing happens any more.
class Membership {
 public:
  enum class Standing : uint8_t {
    kIn,
    kJoining,
    kLost,     // the others have declared it lost
    kCut,      // it has found itself cut off from the group
    kLeft,     // it has left
    kRefused,  // it was not let in
  };

  struct Send {
    WorkerId to;
    wire::GroupMessage message;
  };
  struct EndSession {  // with one that a new view has removed
    WorkerId worker;
  };
  struct Decided {  // this worker has decided a view without these
    WorkerSet lost;
    WorkerSet gone;  // of them, those that are proved to be no more
  };
  struct Kept {  // its round is over: all whom it was about live
    WorkerSet voters;
  };
  struct Ended {  // its own part
    Standing why;
  };
  // What it asks the others as the coordinator.
  struct Round {
    bool proposing = false;  // asks for votes first, then for acceptances
    wire::Ballot ballot;
    WorkerSet wanted;        // whom it is about
    WorkerSet votes;
    std::optional<wire::AcceptedChange> best;  // of what voters had accepted, with the highest ballot
    WorkerSet reached;       // by those who have voted
    WorkerSet missed;        // the limit has passed
    WorkerSet stuck;         // and its machine answers
    wire::Change change;
    WorkerSet accepts;
  };

  using Action = std::variant<Send, EndSession, Decided, Kept, Ended>;
  using Actions = std::vector<Action>;

  // `members`: all of a fixed group, whose first epoch is 1. Without this worker: it is about to join.
  Membership(WorkerId self, WorkerSet members, Partition partition = Partition::kMajority, MembershipRules rules = {});

  // What this worker's watch has found.

  Actions OnBroken(WorkerId worker);   // no path beyond the grace time, or silent for the heartbeat limit
  Actions OnDark(WorkerId worker);     // the same, and its machine does not answer either
  Actions OnGone(WorkerId worker);     // refused at its address, another life is there, or it has left
  Actions OnHeard(WorkerId worker);    // it has sent something
  Actions OnMet(WorkerId worker);      // a path to it is there again
  Actions OnPathLost(WorkerId worker); // what was sent to it may be lost
  // The limit of the round has passed for one of Pending(): its machine answers (stuck), or not (missed).
  Actions OnStuck(WorkerId worker);
  Actions OnMissed(WorkerId worker);
  Actions OnSettled(WorkerId worker);  // it was reported long ago, and no view without it has come
  Actions OnRecheck(WorkerId worker);  // parted; it is time to ask again whether others reach it
  Actions OnSlept();                   // the timers of this worker came late
  Actions OnAnswered(WorkerId worker); // it has answered a beat that was sent since
  Actions OnJudge();                   // WantsToJudge(), and no other round has to be waited for

  // A message, if LetsIn(). For an Ask: whom of `wanted` this worker reaches now, and who of them is gone.
  Actions OnMessage(WorkerId from, const wire::GroupMessage& message, const WorkerSet& reached = {},
                    const WorkerSet& gone = {});
  bool LetsIn(WorkerId from, const wire::GroupMessage& message) const;
  Actions OnRefused(WorkerId by, uint64_t epoch);  // its view of that epoch is one without this worker
  Actions Leave();

  // What it is to watch, and for which timers.

  bool ended() const { return standing_ != Standing::kIn && standing_ != Standing::kJoining; }
  // Whether it is the coordinator, as far as it knows.
  bool Acts() const;
  // To whom it reports and beats; nobody when it reaches nobody.
  std::optional<WorkerId> Target() const;
  WorkerSet Pending() const;  // whom its round still waits for
  bool WantsToJudge() const;
  bool StandsAlone() const;   // nobody more senior is reached

  Standing standing() const { return standing_; }
  uint64_t epoch() const { return epoch_; }
  const WorkerSet& members() const { return members_; }
  const WorkerSet& suspects() const { return suspects_; }  // silent or broken, not settled yet
  const WorkerSet& gone() const { return gone_; }          // proved to be no more
  const WorkerSet& parted() const { return parted_; }      // they live, but not for this worker
  const WorkerSet& reported() const { return reported_; }  // what others suspect
  const WorkerSet& removed() const { return removed_; }    // members of earlier views
  const wire::Ballot& promised() const { return promised_; }
  const std::optional<Round>& round() const { return round_; }
  bool dazed() const { return dazed_; }
  // All that the table holds, for comparing states.
  std::string Key() const;

  // More than half of the members, or all that may live, or half with the most senior of those.
  bool IsQuorum(const WorkerSet& votes, const WorkerSet& gone) const;

 private:
  struct Told {
    WorkerId to;
    WorkerSet about;
    WorkerSet joins;
  };

  Actions Settle(Actions actions);
  void AfterBreak(WorkerId worker, Actions& actions);
  void Hear(WorkerId worker, Actions& actions);
  void SendAgain(WorkerId worker, Actions& actions);
  void ForgetTold(WorkerId worker);
  void Handle(const wire::GroupReport& report, Actions& actions);
  void Handle(WorkerId from, const wire::GroupVote& vote, Actions& actions);
  void Handle(const wire::GroupNack& nack);
  void HandleBallot(WorkerId from, const wire::GroupMessage& message, const WorkerSet& reached, const WorkerSet& gone,
                    Actions& actions);
  void MarkGone(const WorkerSet& workers);
  WorkerSet Cause() const;
  WorkerSet Seniors() const;
  WorkerSet Others() const;  // members that are not gone, without itself
  void Report(Actions& actions);
  void AbandonRound();
  void BeginRound(const WorkerSet& extra, Actions& actions);
  void BeginAgain(Actions& actions);
  void Conclude(Actions& actions);
  bool ConcludeVotes(Actions& actions);
  WorkerSet Admissible(const WorkerSet& lost) const;
  void KeepAll(Actions& actions);
  void CutOff(Actions& actions);
  void End(Standing why, Actions& actions);
  void Decide(Actions& actions);
  void Adopt(uint64_t epoch, const WorkerSet& members, Actions& actions);

  WorkerId self_;
  Partition partition_;
  MembershipRules rules_;
  Standing standing_;
  uint64_t epoch_;
  WorkerSet members_;
  WorkerSet suspects_, gone_, parted_, reported_, removed_;
  WorkerSet dark_;  // of the suspects: their machine was silent too
  wire::Newcomers joins_;
  wire::Ballot promised_;
  std::optional<wire::AcceptedChange> accepted_;
  std::optional<Round> round_;
  std::optional<Told> told_;  // the last report
  bool dazed_ = false;        // it has slept, and nobody has answered it since
};

}  // namespace gradwire::rpc
