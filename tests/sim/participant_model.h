// What Protocol does around the tables of passes, without libtorch: a graph of messages instead of nodes, calls in
// order, answers, losses. Pure functions of a PassState, one for each thing that can happen.
#pragma once

#include <stdexcept>
#include <variant>

#include "participant_explore.h"
#include "participant_world.h"

namespace gradwire::sim {

template <PassMistake>
struct PassRulesOf : autograd::PassRules {};
#define GRADWIRE_MISTAKE(mistake, rule)                            \
  template <>                                                      \
  struct PassRulesOf<PassMistake::mistake> : autograd::PassRules { \
    static constexpr bool rule = false;                            \
  }
GRADWIRE_MISTAKE(kAnswerAtOnce, kAnswerWhenAllBelowHave);
GRADWIRE_MISTAKE(kNoReceipts, kAwaitReceipts);
GRADWIRE_MISTAKE(kCommitEarly, kCommitWhenAllAreDone);
GRADWIRE_MISTAKE(kAbortStops, kAbortAlongMarks);
GRADWIRE_MISTAKE(kAbortAtOnce, kAbortAwaitsNodes);
GRADWIRE_MISTAKE(kLeaveUnanswered, kRefuseWhenFailing);
GRADWIRE_MISTAKE(kOutliveTheStarter, kEndWithTheStarter);
GRADWIRE_MISTAKE(kOutliveAMarker, kEndWithAMarker);
GRADWIRE_MISTAKE(kForgetWhy, kTellWhyItEnded);
GRADWIRE_MISTAKE(kHalfCommitted, kPoisonWhenHalfCommitted);
GRADWIRE_MISTAKE(kCloseLeavesWaits, kCloseEndsWaits);
#undef GRADWIRE_MISTAKE

struct PassBroken : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void RequirePass(bool holds, const char* guarantee) {
  if (!holds) throw PassBroken(guarantee);
}

// A receive node on `holder`: when those of `entries` that take part have run, the gradients of `message` go to `to`.
struct Joint {
  int holder, to, message;
  Mask entries;
};

inline std::vector<Joint> JointsOf(PassGraph graph) {
  switch (graph) {
    case PassGraph::kLine: return {{0, 1, 2, Bit(0)}, {1, 2, 3, Mask(Bit(2) | Bit(1))}};
    case PassGraph::kChain: return {{0, 1, 2, Bit(0)}, {1, 2, 3, Mask(Bit(2) | Bit(1))}, {2, 0, 4, Bit(3)}};
    case PassGraph::kDiamond:
      return {{0, 1, 2, Bit(0)}, {0, 2, 3, Bit(0)}, {1, 2, 4, Mask(Bit(2) | Bit(1))}, {2, 0, 5, Mask(Bit(3) | Bit(4))}};
    case PassGraph::kMeeting: break;
  }
  return {{0, 1, 2, Bit(0)}, {0, 2, 3, Bit(0)}, {1, 2, 4, Mask(Bit(2) | Bit(1))},
          {2, 1, 5, Bit(3)}, {1, 0, 6, Bit(5)}, {2, 0, 7, Bit(4)}};
}

inline constexpr ContextId kContext = 7;

template <PassMistake kMistake>
class PassModel {
 public:
  using World = PassState<PassRulesOf<kMistake>>;
  using Table = typename World::Table;

  explicit PassModel(const PassBounds& bounds) : bounds_(bounds), joints_(JointsOf(bounds.graph)) {
    for (int pass = 0; pass < kPasses; ++pass) Expect(pass);
  }

  // All messages of the pass whose gradients go to the worker; 0: it takes no part.
  Mask expected(int pass, int w) const { return expected_[pass][w]; }
  static int Starter(int pass) { return pass; }

  // What happens by itself.

  void Begin(World& w, int pass) const {
    const int self = Starter(pass);
    const auto refusal = w.Step(self, [&](Table& table) { return table.Begin(KeyOf(pass), false); });
    w.backwards[pass].begun = true;
    if (refusal) return EndBackward(w, pass, refusal);
    w.graphs[pass][self] = {};
    w.Add(self, {WorkKind::kWalk, static_cast<int8_t>(pass), 0, Bit(pass)});
  }

  // `refuses`: the call fails without being handled.
  void Deliver(World& w, int from, int to, bool refuses) const {
    auto& channel = w.channels[from][to];
    const Sent sent = channel.front();
    channel.erase(channel.begin());
    const OpenCall call = w.calls.at(sent.call);
    if (sent.is_answer) {
      if (call.is_waited_for) Answered(w, sent.call, sent.why, sent.workers);
    } else if (refuses) {
      ++w.refusals;
      Reply(w, sent.call, Why::kRefused, 0);
    } else {
      Handle(w, to, sent.call, call);
    }
  }

  // `fails`: nodes of it throw.
  void Finish(World& w, int self, const Work& work, bool fails) const {
    std::erase_if(w.work[self], [&, done = false](const Work& one) mutable {
      return one == work && !std::exchange(done, true);
    });
    const PassKey_ key = KeyOf(work.pass);
    Graph& graph = w.graphs[work.pass][self];
    switch (work.kind) {
      case WorkKind::kWalk: return EndWalk(w, self, work);
      case WorkKind::kArrive: {
        auto arrival = w.Step(self, [&](Table& table) { return table.Arrived(key, IdOf(work.number)); });
        if (arrival.runs) w.Add(self, {WorkKind::kRun, work.pass, work.number});
        return Carry(w, self, arrival.actions);
      }
      case WorkKind::kRun: return EndRun(w, self, work, fails);
      case WorkKind::kAddUp:
        graph.added_up = true;
        return Step(w, self, [&](Table& table) { return table.AddedUp(key, nullptr); });
      case WorkKind::kBeginCommit: {
        const auto refusal = w.Step(self, [&](Table& table) { return table.CommitAsked(key); });
        if (refusal) return Reply(w, work.number, WhyOf(refusal), 0);
        return w.Add(self, {WorkKind::kJoin, work.pass, work.number});
      }
      case WorkKind::kJoin:
        Join(w, work.pass, self);
        Step(w, self, [&](Table& table) { return table.Committed(key); });
        return Reply(w, work.number, Why::kFine, 0);
      case WorkKind::kJoinOwn:
        Join(w, work.pass, self);
        Step(w, self, [&](Table& table) { return table.Joined(key, nullptr); });
        return EndBackward(w, work.pass, nullptr);
      case WorkKind::kFailedCall: return Answered(w, work.number, LossOf(w, self, w.calls.at(work.number).to), 0);
    }
  }

  // What goes wrong.

  void Die(World& w, int victim) const {
    ++w.deaths;
    Go(w, victim);
  }

  void Close(World& w, int self) const {
    ++w.closes;
    Step(w, self, [&](Table& table) { return table.Close(FailureOf(Why::kClosed)); });
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto& backward = w.backwards[pass];
      if (Starter(pass) != self || !backward.begun || backward.left) continue;
      const bool joins = std::any_of(w.work[self].begin(), w.work[self].end(),
                                     [](const Work& work) { return work.kind == WorkKind::kJoinOwn; });
      RequirePass(backward.over || joins, "C1: the end of a worker leaves its backward waiting");
    }
    RequirePass(w.table(self).size() == 0, "A3: a closed table holds a pass");
    w.closed[self] = true;
    Go(w, self);
  }

  void Break(World& w, int one, int other) const {
    ++w.breaks;
    w.broken[one][other] = w.broken[other][one] = true;
  }

  void Notice(World& w, int self, int peer) const {
    w.noticed[self][peer] = true;
    for (const Sent& sent : std::exchange(w.channels[peer][self], {})) {
      if (!sent.is_answer) CloseSide(w, sent.call, &OpenCall::may_answer);
    }
    for (auto& [number, call] : w.calls) {
      if (call.from == self && call.to == peer && call.is_waited_for) {
        w.Add(self, {WorkKind::kFailedCall, call.pass, number});
      }
    }
    Step(w, self, [&](Table& table) { return table.PeerLost(PassWorker(peer), FailureOf(LossOf(w, self, peer))); });
  }

  void Interrupt(World& w, int pass) const {
    ++w.interrupts;
    w.backwards[pass].left = true;
    Step(w, Starter(pass), [&](Table& table) { return table.Abandon(KeyOf(pass), FailureOf(Why::kInterrupted)); });
    // The thread that was to add the gradients has left.
    std::erase_if(w.work[Starter(pass)], [](const Work& work) { return work.kind == WorkKind::kJoinOwn; });
  }

  void Release(World& w, int self) const {
    ++w.releases;
    Step(w, self, [&](Table& table) { return table.ContextReleased(kContext, FailureOf(Why::kReleased)); });
  }

  static bool IsOver(const World& w, int self) { return w.gone[self]; }

 private:
  using PassKey_ = autograd::PassKey;
  using FailurePtr = autograd::FailurePtr;

  void Expect(int pass) {
    expected_[pass][Starter(pass)] = Bit(pass);
    for (bool changes = true; changes;) {
      changes = false;
      for (const Joint& joint : joints_) {
        if (!(joint.entries & expected_[pass][joint.holder])) continue;
        Mask& there = expected_[pass][joint.to];
        changes = changes || !(there & Bit(joint.message));
        there |= Bit(joint.message);
      }
    }
  }

  static PassKey_ KeyOf(int pass) { return {kContext, {PassWorker(Starter(pass)), static_cast<uint64_t>(pass)}}; }
  static int PassOf(const PassKey_& key) { return static_cast<int>(key.id.number); }
  static MessageId IdOf(int message) { return {PassWorker(0), static_cast<uint64_t>(message)}; }

  static FailurePtr FailureOf(Why why) {
    static const auto all = [] {
      std::map<Why, FailurePtr> made;
      const auto make = [&](Why each, ErrorCode code) {
        made[each] = autograd::MakeFailure(code, std::to_string(static_cast<int>(each)));
      };
      make(Why::kLost, ErrorCode::kDisconnected);
      make(Why::kUnreachable, ErrorCode::kUnreachable);
      make(Why::kThrown, ErrorCode::kRemote);
      make(Why::kRefused, ErrorCode::kInternal);
      make(Why::kInterrupted, ErrorCode::kCancelled);
      make(Why::kReleased, ErrorCode::kInvalid);
      make(Why::kClosed, ErrorCode::kDisconnected);
      make(Why::kOther, ErrorCode::kCancelled);
      return made;
    }();
    return why == Why::kFine ? nullptr : all.at(why);
  }
  static Why WhyOf(const FailurePtr& failure) {
    if (!failure) return Why::kFine;
    return failure->text.size() == 1 ? static_cast<Why>(failure->text[0] - '0') : Why::kOther;
  }
  static Why LossOf(const World& w, int self, int peer) {
    return w.gone[peer] || !w.broken[self][peer] ? Why::kLost : Why::kUnreachable;
  }

  void Go(World& w, int victim) const {
    w.gone[victim] = true;
    w.work[victim].clear();
    for (int other = 0; other < kPassWorkers; ++other) {
      for (const Sent& sent : std::exchange(w.channels[other][victim], {})) CloseSide(w, sent.call, nullptr);
    }
    std::vector<int8_t> its;
    for (auto& [number, call] : w.calls) {
      if (call.from == victim || call.to == victim) its.push_back(number);
    }
    for (const int8_t number : its) {
      OpenCall& call = w.calls.at(number);
      if (call.from == victim) call.is_waited_for = false;
      if (call.to == victim) call.may_answer = IsUnderWay(w, number);
      if (!call.is_waited_for && !call.may_answer) w.calls.erase(number);
    }
  }

  static bool IsUnderWay(const World& w, int8_t number) {
    const OpenCall& call = w.calls.at(number);
    const auto& channel = w.channels[call.to][call.from];
    return std::any_of(channel.begin(), channel.end(),
                       [&](const Sent& sent) { return sent.call == number && sent.is_answer; });
  }

  // One side of a call has nothing to do with it any more; null: only looks whether both are so.
  void CloseSide(World& w, int8_t number, bool OpenCall::*side) const {
    const auto at = w.calls.find(number);
    if (at == w.calls.end()) return;
    if (side) at->second.*side = false;
    if (!at->second.is_waited_for && !at->second.may_answer && !IsUnderWay(w, number)) w.calls.erase(at);
  }

  void Call(World& w, OpenCall call) const {
    int8_t number = 1;
    while (w.calls.contains(number)) ++number;
    const bool arrives = !w.gone[call.to] && !w.noticed[call.from][call.to];
    call.may_answer = arrives;
    w.calls.emplace(number, call);
    if (arrives) w.channels[call.from][call.to].push_back({number, false, Why::kFine, 0});
    if (w.noticed[call.from][call.to]) w.Add(call.from, {WorkKind::kFailedCall, call.pass, number});
  }

  void Reply(World& w, int8_t number, Why why, Mask workers) const {
    const auto at = w.calls.find(number);
    if (at == w.calls.end()) return;
    const OpenCall call = at->second;
    at->second.may_answer = false;
    const bool arrives = !w.gone[call.from] && !w.gone[call.to] && !w.noticed[call.to][call.from];
    if (arrives) w.channels[call.to][call.from].push_back({number, true, why, workers});
    CloseSide(w, number, nullptr);
  }

  template <class TableEvent>
  void Step(World& w, int self, TableEvent event) const {
    Carry(w, self, w.Step(self, event));
  }

  void Handle(World& w, int self, int8_t number, const OpenCall& call) const {
    const PassKey_ key = KeyOf(call.pass);
    switch (call.kind) {
      case CallKind::kMark: {
        const bool is_new = !w.table(self).Has(key);
        auto admission = w.Step(self, [&](Table& table) {
          return table.Marked(key, false, static_cast<uint32_t>(call.from), static_cast<autograd::Asker>(number));
        });
        if (admission.walks && is_new) w.graphs[call.pass][self] = {};
        if (admission.walks) w.Add(self, {WorkKind::kWalk, call.pass, number, call.messages});
        return Carry(w, self, admission.actions);
      }
      case CallKind::kRun: return Step(w, self, [&](Table& table) { return table.RunAsked(key, number); });
      case CallKind::kCommit: return w.Add(self, {WorkKind::kBeginCommit, call.pass, number});
      case CallKind::kAbort:
        return Step(w, self, [&](Table& table) { return table.AbortAsked(key, number, FailureOf(call.why)); });
      case CallKind::kGradients:
        Reply(w, number, Why::kFine, 0);
        for (int message = 0; message < 16; ++message) {
          if (call.messages & Bit(message)) w.Add(self, {WorkKind::kArrive, call.pass, static_cast<int8_t>(message)});
        }
    }
  }

  void Answered(World& w, int8_t number, Why why, Mask workers) const {
    const OpenCall call = w.calls.at(number);
    CloseSide(w, number, &OpenCall::is_waited_for);
    const PassKey_ key = KeyOf(call.pass);
    const WorkerId from = PassWorker(call.to);
    const FailurePtr failure = FailureOf(why);
    std::set<WorkerId> reached;
    for (int each = 0; each < kPassWorkers; ++each) {
      if (workers & Bit(each)) reached.insert(PassWorker(each));
    }
    Step(w, call.from, [&](Table& table) {
      switch (call.kind) {
        case CallKind::kMark:
          return table.MarkAnswered(key, static_cast<autograd::Asker>(call.walk), from, failure, reached);
        case CallKind::kRun: return table.RunAnswered(key, from, failure);
        case CallKind::kCommit: return table.CommitAnswered(key, from, failure);
        case CallKind::kAbort: return table.AbortAnswered(key, from);
        case CallKind::kGradients: break;
      }
      return table.GradientsAnswered(key, failure);
    });
    AddUpIfAllHasRun(w, call.from, call.pass);
  }

  void EndWalk(World& w, int self, const Work& work) const {
    Graph& graph = w.graphs[work.pass][self];
    typename Table::Walk walk;
    graph.counted |= work.entries;
    for (int message = 0; message < 16; ++message) {
      if (work.entries & Bit(message)) walk.counted.push_back(IdOf(message));
    }
    for (const Joint& joint : joints_) {
      if (joint.holder != self || !(joint.entries & work.entries) || (graph.reached & Bit(joint.message))) continue;
      graph.reached |= Bit(joint.message);
      walk.reached[PassWorker(joint.to)].push_back({IdOf(joint.message), {}});
    }
    Step(w, self, [&](Table& table) {
      return table.Walked(KeyOf(work.pass), static_cast<autograd::Asker>(work.number), std::move(walk));
    });
  }

  void EndRun(World& w, int self, const Work& work, bool fails) const {
    const PassKey_ key = KeyOf(work.pass);
    Graph& graph = w.graphs[work.pass][self];
    if (fails) {
      ++w.node_failures;
    } else {
      graph.ran |= Bit(work.number);
      for (const Joint& joint : joints_) {
        const Mask needed = joint.entries & graph.counted;
        const bool fires = joint.holder == self && (graph.reached & Bit(joint.message)) &&
                           !(graph.fired & Bit(joint.message)) && (needed & graph.ran) == needed;
        if (!fires) continue;
        graph.fired |= Bit(joint.message);
        const bool wanted = w.Step(self, [&](Table& table) { return table.Left(key); });
        if (!wanted) continue;
        Call(w, {.kind = CallKind::kGradients,
                 .from = static_cast<int8_t>(self),
                 .to = static_cast<int8_t>(joint.to),
                 .pass = work.pass,
                 .messages = Bit(joint.message)});
      }
    }
    const FailurePtr failure = fails ? FailureOf(Why::kThrown) : nullptr;
    Step(w, self, [&](Table& table) { return table.Ran(key, IdOf(work.number), failure); });
    AddUpIfAllHasRun(w, self, work.pass);
  }

  void AddUpIfAllHasRun(World& w, int self, int8_t pass) const {
    if (!w.Step(self, [&](Table& table) { return table.TakeAddingUp(KeyOf(pass)); })) return;
    RequirePass(w.graphs[pass][self].ran == expected(pass, self), "A1: gradients are added up before all have come");
    w.Add(self, {WorkKind::kAddUp, pass, 0});
  }

  void Join(World& w, int pass, int self) const {
    Graph& graph = w.graphs[pass][self];
    ++graph.joined;
    RequirePass(graph.joined == 1, "A1: gradients are added to the context twice");
    for (int each = 0; each < kPassWorkers; ++each) {
      const bool is_done = expected(pass, each) == 0 || w.graphs[pass][each].added_up;
      RequirePass(is_done, "A3: gradients are added before all workers are done");
    }
  }

  void EndBackward(World& w, int pass, const FailurePtr& failure) const {
    auto& backward = w.backwards[pass];
    backward.over = true;
    backward.why = WhyOf(failure);
    const bool all_live = w.deaths + w.closes + w.breaks == 0;
    for (int each = 0; each < kPassWorkers; ++each) {
      const Graph& graph = w.graphs[pass][each];
      const int wanted = expected(pass, each) ? 1 : 0;
      if (!failure) RequirePass(graph.joined == wanted, "A1: a worker has not added its gradients");
      if (!failure || w.closed[Starter(pass)] || backward.why == Why::kClosed) continue;
      RequirePass(!graph.joined || w.poisoned[Starter(pass)], "A3: a failed pass has added gradients");
      if (!all_live || backward.why == Why::kOther) continue;
      RequirePass(!w.table(each).Has(KeyOf(pass)), "A3: backward has ended, and a worker has state of its pass");
      for (const Work& work : w.work[each]) {
        const bool runs = work.pass == pass && (work.kind == WorkKind::kRun || work.kind == WorkKind::kWalk);
        RequirePass(!runs, "A3: backward has ended, and nodes of it run");
      }
    }
    const bool only_losses = w.refusals + w.node_failures + w.interrupts + w.releases == 0 && !w.backwards[1].begun;
    if (!failure || !only_losses) return;
    RequirePass(autograd::IsLoss(*failure), "A3: a loss ends a pass, and its error says something else");
    RequirePass(w.poisoned[Starter(pass)] || backward.why == Why::kClosed, "A3: a loss leaves the context usable");
  }

  // Carrying the table's actions out.

  void Carry(World& w, int self, const typename Table::Actions& actions) const {
    for (const auto& action : actions) {
      if (const auto* ask = std::get_if<autograd::Ask>(&action)) {
        CarryAsk(w, self, *ask);
      } else if (const auto* answer = std::get_if<autograd::Answer>(&action)) {
        Mask workers = 0;
        for (const WorkerId& worker : answer->workers) workers |= Bit(NumberOfWorker(worker));
        Reply(w, static_cast<int8_t>(answer->asker), WhyOf(answer->failure), workers);
      } else if (const auto* feed = std::get_if<autograd::Feed>(&action)) {
        const auto pass = static_cast<int8_t>(PassOf(feed->pass));
        w.Add(self, {WorkKind::kArrive, pass, pass});
      } else if (const auto* end = std::get_if<autograd::End>(&action)) {
        const int pass = PassOf(end->pass);
        if (end->failure) {
          EndBackward(w, pass, end->failure);
        } else {
          w.Add(self, {WorkKind::kJoinOwn, static_cast<int8_t>(pass), 0});
        }
      } else if (std::holds_alternative<autograd::Poison>(action)) {
        w.poisoned[self] = true;
      }
    }
  }

  void CarryAsk(World& w, int self, const autograd::Ask& ask) const {
    static constexpr CallKind kinds[] = {CallKind::kMark, CallKind::kRun, CallKind::kCommit, CallKind::kAbort};
    OpenCall call{.kind = kinds[static_cast<int>(ask.what)],
                  .from = static_cast<int8_t>(self),
                  .to = static_cast<int8_t>(NumberOfWorker(ask.to)),
                  .pass = static_cast<int8_t>(PassOf(ask.pass)),
                  .walk = static_cast<int8_t>(ask.walk),
                  .why = WhyOf(ask.failure)};
    for (const autograd::Marking& marking : ask.messages) {
      call.messages |= Bit(static_cast<int>(marking.message.number));
    }
    Call(w, call);
  }

  const PassBounds bounds_;
  const std::vector<Joint> joints_;
  std::array<std::array<Mask, kPassWorkers>, kPasses> expected_{};
};

}  // namespace gradwire::sim
