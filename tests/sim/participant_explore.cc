#include "participant_explore.h"

#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "instrumented.h"
#include "participant_model.h"

namespace gradwire::sim {
namespace {

const char* NameOf(CallKind kind) {
  switch (kind) {
    case CallKind::kMark: return "mark";
    case CallKind::kRun: return "run";
    case CallKind::kCommit: return "commit";
    case CallKind::kAbort: return "abort";
    case CallKind::kGradients: break;
  }
  return "gradients";
}

const char* NameOf(WorkKind kind) {
  switch (kind) {
    case WorkKind::kWalk: return "ends a walk";
    case WorkKind::kArrive: return "takes gradients in";
    case WorkKind::kRun: return "has run nodes";
    case WorkKind::kAddUp: return "has added up";
    case WorkKind::kBeginCommit: return "begins to commit";
    case WorkKind::kJoin: return "has committed";
    case WorkKind::kJoinOwn: return "has committed as the starter";
    case WorkKind::kFailedCall: break;
  }
  return "sees a call to a lost worker fail";
}

template <PassMistake kMistake>
class PassExplorer {
 public:
  explicit PassExplorer(const PassBounds& bounds) : bounds_(bounds), model_(bounds) {}

  PassReport Run() {
    PassReport report;
    try {
      World start;
      model_.Begin(start, 0);
      seen_.insert(start.Key());
      Visit(start);
    } catch (const PassBroken& broken) {
      report.broken = broken.what();
      report.steps = path_;
    }
    report.states = seen_.size();
    return report;
  }

 private:
  using World = typename PassModel<kMistake>::World;

  // The exploration, depth first: the path is the trace of what broke.
  void Visit(const World& w) {
    if (seen_.size() > kMostStates) return;
    bool at_rest = true;
    for (int self = 0; self < kPassWorkers; ++self) {
      if (w.gone[self]) continue;
      for (const Work& work : w.work[self]) {
        at_rest = false;
        const std::string name = std::string(kPassNames[self]) + " " + NameOf(work.kind);
        Try(w, name, [&](World& next) { model_.Finish(next, self, work, false); });
        if (work.kind == WorkKind::kRun && w.node_failures < bounds_.node_failures) {
          Try(w, name + ", which throw", [&](World& next) { model_.Finish(next, self, work, true); });
        }
      }
      for (int peer = 0; peer < kPassWorkers; ++peer) {
        at_rest = !TryPair(w, self, peer) && at_rest;
      }
    }
    if (at_rest) CheckRest(w);
    TryFaults(w);
  }

  // What `peer` has sent to `self`, and its loss. Whether there was anything.
  bool TryPair(const World& w, int self, int peer) {
    bool any = false;
    const std::string who = kPassNames[self];
    const auto& channel = w.channels[peer][self];
    if (!channel.empty() && !w.noticed[self][peer]) {
      any = true;
      const Sent& sent = channel.front();
      const CallKind kind = w.calls.at(sent.call).kind;
      const std::string what = std::string(sent.is_answer ? " gets the answer to a " : " gets a ") + NameOf(kind) +
                               (sent.is_answer ? " from " : " of ") + kPassNames[peer];
      Try(w, who + what, [&](World& next) { model_.Deliver(next, peer, self, false); });
      if (!sent.is_answer && kind != CallKind::kAbort && w.refusals < bounds_.refusals) {
        Try(w, who + " cannot take a " + NameOf(kind) + " of " + kPassNames[peer],
            [&](World& next) { model_.Deliver(next, peer, self, true); });
      }
    }
    const bool is_lost = peer != self && (w.gone[peer] || w.broken[self][peer]);
    if (is_lost && !w.noticed[self][peer]) {
      any = true;
      Try(w, who + " notices the loss of " + kPassNames[peer], [&](World& next) { model_.Notice(next, self, peer); });
    }
    return any;
  }

  void TryFaults(const World& w) {
    for (int self = 0; self < kPassWorkers; ++self) {
      if (w.gone[self]) continue;
      const std::string who = kPassNames[self];
      if (w.deaths < bounds_.deaths) Try(w, who + " dies", [&](World& next) { model_.Die(next, self); });
      if (w.closes < bounds_.closes) Try(w, who + " stops", [&](World& next) { model_.Close(next, self); });
      if (w.releases < bounds_.releases) {
        Try(w, who + " releases the context", [&](World& next) { model_.Release(next, self); });
      }
      for (int other = self + 1; other < kPassWorkers && w.breaks < bounds_.breaks; ++other) {
        if (w.gone[other]) continue;
        Try(w, who + " and " + kPassNames[other] + " lose each other",
            [&](World& next) { model_.Break(next, self, other); });
      }
    }
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto& backward = w.backwards[pass];
      if (!backward.begun && bounds_.second_pass && !w.gone[pass]) {
        Try(w, std::string(kPassNames[pass]) + " begins a pass", [&](World& next) { model_.Begin(next, pass); });
      }
      const bool waits = backward.begun && !backward.over && !backward.left && !w.gone[pass];
      if (waits && w.interrupts < bounds_.interrupts) {
        Try(w, std::string(kPassNames[pass]) + " is interrupted", [&](World& next) { model_.Interrupt(next, pass); });
      }
    }
  }

  template <class Change>
  void Try(const World& w, std::string step, Change change) {
    World next = w;
    path_.push_back(std::move(step));
    change(next);
    if (seen_.insert(next.Key()).second) Visit(next);
    path_.pop_back();
  }

  // With nothing under way every backward of a live worker has ended, and no live worker has state of a pass.
  void CheckRest(const World& w) const {
    for (int self = 0; self < kPassWorkers; ++self) {
      if (w.gone[self]) continue;
      RequirePass(w.table(self).size() == 0, "A3: a live worker has state of a pass at rest");
    }
    bool any_fault = w.backwards[1].begun;
    for (const auto used : {w.deaths, w.closes, w.breaks, w.refusals, w.node_failures, w.interrupts, w.releases}) {
      any_fault = any_fault || used > 0;
    }
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto& backward = w.backwards[pass];
      if (!backward.begun || backward.left || w.gone[pass]) continue;
      RequirePass(backward.over, "C1: a backward never ends");
      RequirePass(any_fault || backward.why == Why::kFine, "A1: a pass fails without a reason");
    }
    for (const auto& [number, call] : w.calls) {
      RequirePass(!call.is_waited_for || w.gone[call.from], "C1: a call of the pass is never answered");
    }
  }

  const PassBounds bounds_;
  const PassModel<kMistake> model_;
  std::unordered_set<std::string> seen_;
  std::vector<std::string> path_;
};

}  // namespace

PassReport ExplorePasses(const PassBounds& bounds, PassMistake mistake) {
  switch (mistake) {
    case PassMistake::kNone: return PassExplorer<PassMistake::kNone>(bounds).Run();
    case PassMistake::kAnswerAtOnce: return PassExplorer<PassMistake::kAnswerAtOnce>(bounds).Run();
    case PassMistake::kNoReceipts: return PassExplorer<PassMistake::kNoReceipts>(bounds).Run();
    case PassMistake::kCommitEarly: return PassExplorer<PassMistake::kCommitEarly>(bounds).Run();
    case PassMistake::kAbortStops: return PassExplorer<PassMistake::kAbortStops>(bounds).Run();
    case PassMistake::kAbortAtOnce: return PassExplorer<PassMistake::kAbortAtOnce>(bounds).Run();
    case PassMistake::kLeaveUnanswered: return PassExplorer<PassMistake::kLeaveUnanswered>(bounds).Run();
    case PassMistake::kOutliveTheStarter: return PassExplorer<PassMistake::kOutliveTheStarter>(bounds).Run();
    case PassMistake::kOutliveAMarker: return PassExplorer<PassMistake::kOutliveAMarker>(bounds).Run();
    case PassMistake::kForgetWhy: return PassExplorer<PassMistake::kForgetWhy>(bounds).Run();
    case PassMistake::kHalfCommitted: return PassExplorer<PassMistake::kHalfCommitted>(bounds).Run();
    case PassMistake::kCloseLeavesWaits: return PassExplorer<PassMistake::kCloseLeavesWaits>(bounds).Run();
  }
  throw std::logic_error("no such mistake");
}

}  // namespace gradwire::sim
