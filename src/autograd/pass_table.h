// PassTable: the backward passes that a worker takes part in, and how far each has come (docs/autograd.md, "A pass").
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/rule.h"
#include "gradwire/error.h"

namespace gradwire::autograd {

struct PassId {
  WorkerId starter;
  uint64_t number = 0;
  auto operator<=>(const PassId&) const = default;
};

// At most one pass runs in a context on one worker at a time.
struct PassKey {
  ContextId context = 0;
  PassId id;
  auto operator<=>(const PassKey&) const = default;
};

// A send node that takes part, and which of its tensors do.
struct Marking {
  MessageId message;
  std::vector<uint32_t> tensors;
};

// The number of somebody who is to be answered; the caller of the table chooses it. It also names the walk that a mark
// begins. Nobody asks for the walk from the roots.
using Asker = uint64_t;
inline constexpr Asker kNobody = 0;

using FailurePtr = std::shared_ptr<const Failure>;

// A call to another worker. Its answer, or its failure, comes back as MarkAnswered() and so on.
enum class Question : uint8_t { kMark, kRun, kCommit, kAbort };
struct Ask {
  Question what = Question::kMark;
  PassKey pass;
  WorkerId to;
  Asker walk = kNobody;            // kMark: whose walk found this
  bool retain_graph = false;       // kMark
  std::vector<Marking> messages;   // kMark
  FailurePtr failure;              // kAbort: why
};
struct Answer {
  Asker asker = kNobody;
  FailurePtr failure;              // null: it went well
  std::set<WorkerId> workers;      // a mark's: who takes part below, this worker included
};
// The starter: every mark is answered, the gradients of the roots may arrive.
struct Feed {
  PassKey pass;
};
// The starter: the pass is over. Without a failure all others have added their gradients, and Joined() is to follow.
struct End {
  PassKey pass;
  FailurePtr failure;
};
// No node of the pass starts any more.
struct Stop {
  PassKey pass;
};
// Later passes of the context fail with this at once.
struct Poison {
  ContextId context = 0;
  FailurePtr failure;
};
// The table knows nothing of the pass any more, and no node of it runs here; after Close() some may.
struct Forget {
  PassKey pass;
};

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/participant_explore.h).
struct PassRules {
  GRADWIRE_RULE kAnswerWhenAllBelowHave = true;  // a mark is answered after the marks that it caused
  GRADWIRE_RULE kAwaitReceipts = true;           // done only when the gradients that were sent have arrived
  GRADWIRE_RULE kCommitWhenAllAreDone = true;    // no worker adds its gradients before the last one is done
  GRADWIRE_RULE kAbortAlongMarks = true;         // an abort goes on to those that were marked from here
  GRADWIRE_RULE kAbortAwaitsNodes = true;        // an abort is answered when no node runs any more
  GRADWIRE_RULE kRefuseWhenFailing = true;       // marks that wait for answers are answered when a part fails
  GRADWIRE_RULE kEndWithTheStarter = true;       // the loss of its starter ends a part
  GRADWIRE_RULE kEndWithAMarker = true;          // so does the loss of who marked it, before the starter knows
  GRADWIRE_RULE kTellWhyItEnded = true;          // that a loss ended a part is told to those who ask later
  GRADWIRE_RULE kPoisonWhenHalfCommitted = true; // a failure between the first commit and the last poisons
  GRADWIRE_RULE kCloseEndsWaits = true;          // the end of this worker ends its own passes
};

// A pure state machine, as OwnerTable: each event changes the table and returns what is to be done about it. No locks:
// the caller holds one mutex around each event, and carries the actions out after unlock, those of all events in the
// order of the events. Walking, running nodes and adding up are the caller's; it says when they have ended. Events of
// passes that are not here change nothing. Copyable, so that states can be explored.
template <class Rules>
class BasicPassTable {
 public:
  using Action = std::variant<Ask, Answer, Feed, End, Stop, Poison, Forget>;
  using Actions = std::vector<Action>;

  explicit BasicPassTable(WorkerId self) : self_(self) {}

  // A pass of this worker's own. The walk from its roots (kNobody) has begun; Walked() follows. Why not, otherwise.
  [[nodiscard]] FailurePtr Begin(const PassKey& pass, bool retain_graph);
  // Nobody waits for the end of this worker's own pass any more: it is aborted, and ends without End.
  [[nodiscard]] Actions Abandon(const PassKey& pass, const FailurePtr& why);
  // After End: the starter's own gradients were added, or could not be.
  [[nodiscard]] Actions Joined(const PassKey& pass, const FailurePtr& failure);

  // Header step of a mark of the worker with rank `marker`. `walks`: the walk has begun, and Walked() follows; else the
  // mark is answered by the actions.
  struct Admission {
    bool walks = false;
    Actions actions;
  };
  [[nodiscard]] Admission Marked(const PassKey& pass, bool retain_graph, uint32_t marker, Asker asker);

  // A walk has ended: the messages whose gradients will come here because of it, each named once, and what it reached
  // on other workers, which was not reached before.
  struct Walk {
    std::vector<MessageId> counted;
    std::map<WorkerId, std::vector<Marking>> reached;
    FailurePtr failure;
  };
  [[nodiscard]] Actions Walked(const PassKey& pass, Asker walk, Walk result);
  [[nodiscard]] Actions MarkAnswered(const PassKey& pass, Asker walk, WorkerId from, const FailurePtr& failure,
                                     const std::set<WorkerId>& workers);

  // The gradients of `message` are here. `runs`: what it leads to is to be run now, and Ran() follows. Otherwise they
  // are too late, or wrong.
  struct Arrival {
    bool runs = false;
    Actions actions;
  };
  [[nodiscard]] Arrival Arrived(const PassKey& pass, MessageId message);
  [[nodiscard]] Actions Ran(const PassKey& pass, MessageId message, const FailurePtr& failure);
  // Gradients are about to be sent to another worker; false: they are not wanted. True: GradientsAnswered() follows.
  [[nodiscard]] bool Left(const PassKey& pass);
  [[nodiscard]] Actions GradientsAnswered(const PassKey& pass, const FailurePtr& failure);
  // After each of the events above: true once, when everything has run here. Then the caller adds the gradients up, and
  // AddedUp() follows.
  [[nodiscard]] bool TakeAddingUp(const PassKey& pass);
  [[nodiscard]] Actions AddedUp(const PassKey& pass, const FailurePtr& failure);

  // The starter asks to be told when this worker's part is done.
  [[nodiscard]] Actions RunAsked(const PassKey& pass, Asker asker);
  [[nodiscard]] Actions RunAnswered(const PassKey& pass, WorkerId from, const FailurePtr& failure);

  // The starter's commit. Null: the gradients are to join the context now, and Committed() follows. Else why not.
  [[nodiscard]] FailurePtr CommitAsked(const PassKey& pass);
  [[nodiscard]] Actions Committed(const PassKey& pass);
  [[nodiscard]] Actions CommitAnswered(const PassKey& pass, WorkerId from, const FailurePtr& failure);

  [[nodiscard]] Actions AbortAsked(const PassKey& pass, Asker asker, const FailurePtr& why);
  [[nodiscard]] Actions AbortAnswered(const PassKey& pass, WorkerId from);  // a failure counts too: it has ended there

  // What came for the pass cannot be taken: this worker's part fails.
  [[nodiscard]] Actions Failed(const PassKey& pass, const FailurePtr& why);
  [[nodiscard]] Actions ContextReleased(ContextId context, const FailurePtr& why);
  [[nodiscard]] Actions PeerLost(WorkerId peer, const FailurePtr& why);
  // This worker stops, for good (C1): every wait ends with `why`, now and later, and nothing is sent any more.
  [[nodiscard]] Actions Close(const FailurePtr& why);

  size_t size() const { return parts_.size(); }
  bool Has(const PassKey& pass) const;
  // How many messages are counted here, and of how many the gradients have been run to their end.
  std::pair<size_t, size_t> progress(const PassKey& pass) const;
  // Equal exactly for equal states, the texts of failures left out.
  std::string Encoding() const;

 private:
  enum class Phase : uint8_t { kOpen, kDone, kFailed, kAborting, kCommitted };
  enum class Stage : uint8_t { kMarking, kRunning, kCommitting };
  enum class Entry : uint8_t { kMarked, kRuns, kRan };
  struct Below {  // of a walk
    bool walking = true;
    std::set<WorkerId> unanswered;
    std::set<WorkerId> workers;
  };
  struct Part {
    PassId id;
    bool retain_graph = false;
    Phase phase = Phase::kOpen;
    FailurePtr failure;
    std::map<Asker, Below> walks;  // unanswered ones
    std::map<MessageId, Entry> entries;
    size_t missing = 0;     // entries that have not been run to their end
    size_t unanswered = 0;  // gradients sent
    size_t active = 0;      // walks, entries, addings-up and joins under way on threads of this worker
    bool adding_up = false;
    bool run_asked = false;
    Asker run_asker = kNobody;
    std::set<WorkerId> marked;   // from here
    std::set<uint32_t> markers;  // ranks
    std::vector<Asker> abort_askers;
    std::set<WorkerId> aborting;  // whose answers to an abort are not here

    std::optional<Stage> stage;  // the starter's; what follows is too
    bool abandoned = false;
    std::set<WorkerId> others;   // all that take part
    std::set<WorkerId> awaited;  // of them, whose part is not done, or not committed
  };
  using Parts = std::map<ContextId, Part>;

  Part* Find(const PassKey& pass);
  const Part* Find(const PassKey& pass) const;
  FailurePtr WhyNotHere(const PassKey& pass) const;
  static void AnswerTo(Asker asker, FailurePtr failure, Actions& actions, std::set<WorkerId> workers = {});
  void CompleteWalk(const PassKey& pass, Part& part, Asker walk, Actions& actions);
  void AskOthers(Question what, const PassKey& pass, Part& part, Actions& actions);
  void CommitIfAllAreDone(const PassKey& pass, Part& part, Actions& actions);
  void Fail(const PassKey& pass, Part& part, const FailurePtr& why, Actions& actions);
  void BeginAbort(const PassKey& pass, Part& part, const FailurePtr& why, Actions& actions);
  void RefuseAskers(Part& part, Actions& actions);
  void LosePeer(const PassKey& pass, Part& part, WorkerId peer, const FailurePtr& why, Actions& actions);
  void Settle(const PassKey& pass, Part& part, Actions& actions);  // `part` may be gone after it
  static void Encode(const Part& part, std::string& out);

  WorkerId self_;
  Parts parts_;
  // Parts that a loss ended, until the context's next pass: what became of them, for those who ask.
  std::map<ContextId, std::pair<PassId, FailurePtr>> ended_;
  FailurePtr closed_;  // why, after Close
};

using PassTable = BasicPassTable<PassRules>;
extern template class BasicPassTable<PassRules>;

// Whether the failure says that a worker is gone, or cannot be reached any more.
bool IsLoss(const Failure& failure);

}  // namespace gradwire::autograd
