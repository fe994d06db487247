#include "membership_steps.h"

#include <algorithm>

namespace gradwire::sim {
namespace {

using Standing = rpc::Membership::Standing;
using Mistake = MembershipMistake;

class StepsOf {
 public:
  explicit StepsOf(World& world) : w_(world), n_(world.n) {}

  std::vector<WorldStep> All() {
    if (!Messages()) return std::move(steps_);
    bool busy = !steps_.empty();
    for (int i = 0; i < n_; ++i) {
      if (IsLive(i)) OwnSteps(i);
    }
    Meetings();
    for (const WorldStep& step : steps_) busy = busy || step.urgency == Urgency::kDo;
    Faults();
    if (busy) return std::move(steps_);
    for (int i = 0; i < n_; ++i) {
      if (!IsLive(i) || !w_.facts(i).in) continue;
      const auto& t = w_.facts(i);
      Each((t.suspects | t.reported) & t.members, [&](int x) { Add(What::kSettle, Urgency::kLate, i, x); });
    }
    return std::move(steps_);
  }

 private:
  void Add(What what, Urgency urgency, int who, Mask whom = 0) { steps_.push_back({what, urgency, who, whom}); }
  bool IsLive(int i) const { return w_.s.life[i] == Life::kUp && !w_.facts(i).out; }

  // False: one has been found that changes nothing, now or later, and may as well arrive at once.
  bool Messages() {
    for (int at = 0; at < n_ * n_; ++at) {
      const int from = at / n_, to = at % n_;
      if (!w_.Deliverable(from, to)) continue;
      if ((w_.facts(to).members & Bit(from)) != 0 && IsStale(to, from, w_.message(w_.messages(from, to).front()))) {
        steps_ = {{What::kDeliver, Urgency::kDo, from, static_cast<Mask>(to)}};
        return false;
      }
      flushed_ = flushed_ && (w_.s.flush >> at & 1) == 0;
      Add(What::kDeliver, Urgency::kDo, from, to);
    }
    return true;
  }

  bool IsStale(int to, int from, const WorldMessage& m) const {
    if (m.kind != WorldMessage::Kind::kGroup) return false;
    const auto& t = w_.facts(to);
    if (const auto* view = std::get_if<wire::GroupView>(&m.group)) {
      return view->epoch <= t.table.epoch() && !w_.has(Mistake::kAnyEpoch);
    }
    const auto* vote = std::get_if<wire::GroupVote>(&m.group);
    const auto* accept = std::get_if<wire::GroupAccept>(&m.group);
    const auto* nack = std::get_if<wire::GroupNack>(&m.group);
    if (!vote && !accept && !nack) return false;
    const auto& round = t.table.round();
    if (((t.suspects | t.parted) & Bit(from)) != 0) return false;
    if (!round) return true;
    if (round->wanted.contains(w_.things().id(from))) return false;
    if (nack) return nack->promised <= round->ballot;
    return (vote ? vote->ballot : accept->ballot) != round->ballot;
  }

  // Nothing of x can reach i now, and nothing is on its way.
  bool IsSilent(int i, int x) const {
    return (w_.s.cut[i] & Bit(x)) != 0 || (w_.s.life[x] == Life::kFrozen && w_.messages(x, i).empty());
  }

  void OwnSteps(int i) {
    const auto& t = w_.facts(i);
    if (t.table.standing() == Standing::kJoining) {
      if (w_.s.contact[i] >= 0 && w_.Answers(w_.s.contact[i], i)) return;
      for (int x = 0; x < n_; ++x) {
        if (w_.Answers(x, i)) Add(What::kAskIn, Urgency::kDo, i, x);
      }
      return;
    }
    Watch(i);
    if (t.wants_to_judge && !IsBlocked(i)) Add(What::kJudge, Urgency::kDo, i);
    if (t.table.dazed()) {
      Each(t.members & ~Bit(i), [&](int x) {
        if (w_.Answers(x, i) && (w_.facts(x).members & Bit(i)) != 0) Add(What::kAnswered, Urgency::kDo, i, x);
      });
    }
    if (t.parted != 0 && t.stands_alone && !w_.has(Mistake::kNoRecheck)) {
      Each(t.parted, [&](int x) {
        if (IsLostToAll(i, x)) Add(What::kRecheck, Urgency::kDo, i, x);
      });
    }
    if (w_.scenario().data > 0) {
      Each(w_.s.hand[i], [&](int x) { Add(What::kHandled, Urgency::kDo, i, x); });
      Each(w_.s.to_drain[i] & ~w_.s.hand[i], [&](int x) { Add(What::kDrained, Urgency::kDo, i, x); });
    }
    if (w_.scenario().shutdown) ShutdownSteps(i);
  }

  // Beats go from each to whom it would report to, and from a coordinator to all; whoever gets beats misses them.
  void Watch(int i) {
    const auto& t = w_.facts(i);
    const bool quiet = w_.scenario().quiet;
    Mask unheard = 0, missed = 0;
    Each(t.members & ~Bit(i) & ~t.gone, [&](int x) {
      const bool waits = (t.pending & Bit(x)) != 0;
      const bool watches = t.acts || waits || t.target == x || w_.facts(x).target == i;
      if (quiet && !watches) return;
      const Urgency urgency = watches ? Urgency::kDo : Urgency::kMay;
      if (w_.IsOut(x) && (w_.s.cut[i] & Bit(x)) == 0) {
        const auto& other = w_.facts(x);
        const bool lives = w_.s.life[x] == Life::kUp;
        if (lives && other.table.epoch() > t.table.epoch() && (other.members & Bit(i)) == 0) {
          Add(What::kToldLoss, Urgency::kDo, i, x);
        } else {
          Add(What::kFindGone, urgency, i, x);
        }
      } else if (flushed_ && IsSilent(i, x)) {
        if (((t.suspects | t.parted) & Bit(x)) == 0) {
          unheard |= Bit(x);
          if (!quiet) Add(What::kLoseSight, urgency, i, Bit(x));
        }
        if (waits) {
          missed |= Bit(x);
          if (!quiet) Add(What::kMiss, Urgency::kDo, i, Bit(x));
        }
      }
    });
    if (quiet && unheard != 0) Add(What::kLoseSight, Urgency::kDo, i, unheard);
    if (quiet && missed != 0) Add(What::kMiss, Urgency::kDo, i, missed);
  }

  // While a round of another that it has promised to goes on it begins none of its own. (In time: for its limit.)
  bool IsBlocked(int i) const {
    const auto& t = w_.facts(i);
    const wire::Ballot& promised = t.table.promised();
    if (promised.attempt == 0) return false;
    const int p = w_.things().IndexOf(promised.proposer);
    if (p == i || (t.members & Bit(p) & ~t.gone) == 0 || w_.has(Mistake::kNoWait)) return false;
    const auto& round = w_.facts(p).table.round();
    const bool goes_on = w_.s.life[p] == Life::kUp && round && round->ballot == promised;
    return goes_on || w_.has(Mistake::kWaitForEver);
  }

  // What asking the others again about one that does not answer here would bring.
  bool IsLostToAll(int i, int x) const {
    if (w_.Answers(x, i)) return false;
    bool lost = true;
    Each(w_.facts(i).members & ~Bit(i), [&](int j) {
      lost = lost && (j == x || !w_.Answers(j, i) || !w_.Answers(x, j));
    });
    return lost;
  }

  void ShutdownSteps(int i) {
    const auto& t = w_.facts(i);
    const Mask there = t.members & ~t.gone;
    const int leader = __builtin_ctz(there);
    if (w_.s.phase[i] == 0) {
      Add(What::kArrive, Urgency::kDo, i);
    } else if (leader != i) {
      if (w_.s.told_to[i] != leader) Add(What::kTellArrival, Urgency::kDo, i, leader);
    } else if ((there & ~Bit(i) & ~Mask{w_.s.arrived[i]}) == 0) {
      Add(What::kFinish, Urgency::kDo, i);
    }
  }

  // What beats bring to light: epochs that differ, those who are in no view any more, pairs that are whole again.
  void Meetings() {
    for (int a = 0; a < n_; ++a) {
      if (!IsLive(a) || !w_.facts(a).in) continue;
      for (int b = 0; b < n_; ++b) {
        if (b != a && IsLive(b) && (w_.s.cut[a] & Bit(b)) == 0) Meeting(a, b);
      }
    }
  }

  void Meeting(int a, int b) {
    const auto &ta = w_.facts(a), &tb = w_.facts(b);
    const uint64_t epoch = ta.table.epoch();
    if (epoch == tb.table.epoch() && ta.members == tb.members && (ta.parted | tb.parted) == 0) return;
    const bool beats = ta.acts || tb.acts || ta.target == b || tb.target == a;
    const bool knows = (ta.members & Bit(b)) != 0;
    if (beats && knows && tb.table.epoch() < epoch && !w_.has(Mistake::kToldOnce)) {
      const auto& channel = w_.messages(a, b);
      const bool told = std::any_of(channel.begin(), channel.end(), [&](uint32_t number) {
        const auto* view = std::get_if<wire::GroupView>(&w_.message(number).group);
        return w_.message(number).kind == WorldMessage::Kind::kGroup && view && view->epoch >= epoch;
      });
      if (!told) Add(What::kTellView, Urgency::kDo, a, b);
    }
    if (beats && tb.in && !knows && (tb.members & Bit(a)) != 0 && epoch >= tb.table.epoch()) {
      const bool silent = w_.has(Mistake::kSilentFence) || w_.has(Mistake::kNoFence);
      const auto& channel = w_.messages(a, b);
      const bool told = std::any_of(channel.begin(), channel.end(), [&](uint32_t number) {
        return w_.message(number).kind == WorldMessage::Kind::kRefuse && w_.message(number).epoch == epoch;
      });
      if (!told && !silent) Add(What::kRefuse, Urgency::kDo, a, b);
    }
    const bool apart = (tb.parted & Bit(a)) != 0 || (ta.parted & Bit(b)) != 0;
    if (a < b && apart && knows && (tb.members & Bit(a)) != 0) Add(What::kMeet, Urgency::kDo, a, b);
  }

  uint8_t Left(Fault fault) const { return w_.s.budget[static_cast<size_t>(fault)]; }

  void Faults() {
    Mask there = 0;
    for (int i = 0; i < n_; ++i) there |= w_.IsOut(i) ? 0 : Bit(i);
    Each(there, [&](int x) {
      if (Left(Fault::kDeath) > 0) Add(What::kDie, Urgency::kMay, x);
      if (Left(Fault::kFreeze) > 0 && w_.s.life[x] == Life::kUp) Add(What::kFreeze, Urgency::kMay, x);
      if (w_.s.life[x] == Life::kFrozen) Add(What::kThaw, Urgency::kMay, x);
    });
    const bool is_cut = std::any_of(w_.s.cut.begin(), w_.s.cut.end(), [](uint8_t cut) { return cut != 0; });
    if (Left(Fault::kPartition) > 0 && !is_cut) {  // every way to part them
      const Mask rest = there & (there - 1);       // the first one stands on the other side
      for (Mask side = rest; side != 0; side = (side - 1) & rest) {
        Add(What::kPart, Urgency::kMay, static_cast<int>(there & ~side), side);
      }
    }
    if (is_cut) {
      bool under_way = false;
      for (int a = 0; a < n_; ++a) {
        Each(w_.s.cut[a], [&](int b) { under_way = under_way || !w_.messages(a, b).empty(); });
      }
      if (w_.scenario().late) Add(What::kHeal, Urgency::kMay, 0);
      if (!w_.scenario().late || under_way) Add(What::kHealLossy, Urgency::kMay, 0);
    }
    Each(there, [&](int a) {
      if (w_.s.life[a] == Life::kUp && w_.facts(a).in) {
        Each(there & w_.facts(a).members & ~Bit(a), [&](int b) { PairFaults(a, b); });
      }
    });
    if (Left(Fault::kJoin) > 0) {
      Add(What::kCome, Urgency::kMay, w_.scenario().workers + w_.scenario().joins - Left(Fault::kJoin));
    }
  }

  void PairFaults(int a, int b) {
    const auto& ta = w_.facts(a);
    if (Left(Fault::kPairCut) > 0 && a < b && (w_.s.cut[a] & Bit(b)) == 0) Add(What::kCutPair, Urgency::kMay, a, b);
    if (!w_.Answers(b, a)) return;
    if (Left(Fault::kBreak) > 0 && a < b && (w_.facts(b).members & Bit(a)) != 0) {
      Add(What::kBreakPair, Urgency::kMay, a, b);
    }
    if (Left(Fault::kDoubt) > 0 && ((ta.suspects | ta.parted) & Bit(b)) == 0) Add(What::kDoubt, Urgency::kMay, a, b);
    if (Left(Fault::kData) > 0) Add(What::kCall, Urgency::kMay, a, b);
  }

  World& w_;
  const int n_;
  bool flushed_ = true;  // what was sent before the last fault has arrived
  std::vector<WorldStep> steps_;
};

void ToldLoss(World& w, int i, int x) {
  const WorldMessage refuse{.kind = WorldMessage::Kind::kRefuse, .epoch = w.facts(x).table.epoch()};
  w.Step(i, Event::kRefused, x, w.things().NumberOf(refuse));
}

wire::GroupReport Application(World& w, int j) {
  const int clash = w.scenario().clash;
  wire::GroupReport report;
  report.joins[w.things().id(j)] = w.things().SetOf(clash >= 0 ? Bit(clash) : 0);
  return report;
}

}  // namespace

std::vector<WorldStep> NextSteps(World& world) { return StepsOf(world).All(); }

void Take(World& w, const WorldStep& step) {
  const int i = step.who;
  const int x = static_cast<int>(step.whom);
  using Kind = WorldMessage::Kind;
  switch (step.what) {
    case What::kDeliver: return w.Deliver(i, x);
    case What::kAskIn:
      w.s.contact[i] = static_cast<int8_t>(x);
      return w.Put(i, x, {.kind = Kind::kGroup, .group = Application(w, i)});
    case What::kToldLoss: return ToldLoss(w, i, x);
    case What::kFindGone: w.Clear(x, i); return w.Step(i, Event::kGone, x);
    case What::kLoseSight:
    case What::kMiss:
      return Each(step.whom, [&](int y) {
        const bool cut = (w.s.cut[i] & Bit(y)) != 0;
        if (step.what == What::kMiss) return w.Step(i, cut ? Event::kMissed : Event::kStuck, y);
        w.Step(i, cut ? Event::kDark : Event::kBroken, y);
      });
    case What::kJudge: return w.Step(i, Event::kJudge);
    case What::kAnswered: return w.Step(i, Event::kAnswered, x);
    case What::kRecheck: return w.Step(i, Event::kRecheck, x);
    case What::kHandled: w.s.hand[i] &= ~Bit(x); return;
    case What::kDrained: return w.Drained(i, x);
    case What::kArrive: w.s.phase[i] = 1; return;
    case What::kTellArrival:
      w.s.told_to[i] = static_cast<int8_t>(x);
      return w.Put(i, x, {.kind = Kind::kArrive});
    case What::kFinish: return w.Finish(i);
    case What::kTellView: {
      const auto& t = w.facts(i).table;
      return w.Put(i, x, {.kind = Kind::kGroup, .group = wire::GroupView{t.epoch(), t.members()}});
    }
    case What::kRefuse: return w.Put(i, x, {.kind = Kind::kRefuse, .epoch = w.facts(i).table.epoch()});
    case What::kMeet: w.Step(i, Event::kHeard, x); return w.Step(x, Event::kHeard, i);
    case What::kSettle: return w.Step(i, Event::kSettled, x);
    case What::kDie: w.Spend(Fault::kDeath); return w.Kill(i);
    case What::kFreeze: w.Spend(Fault::kFreeze); return w.Freeze(i);
    case What::kThaw: return w.Thaw(i);
    case What::kPart: w.Spend(Fault::kPartition); return w.Part(static_cast<Mask>(i), step.whom);
    case What::kHeal: return w.Heal(false);
    case What::kHealLossy: return w.Heal(true);
    case What::kCutPair: w.Spend(Fault::kPairCut); return w.CutPair(i, x);
    case What::kBreakPair: w.Spend(Fault::kBreak); return w.BreakPair(i, x, Event::kBroken);
    case What::kDoubt: w.Spend(Fault::kDoubt); return w.Step(i, Event::kBroken, x);
    case What::kCall: w.Spend(Fault::kData); return w.Put(i, x, {.kind = Kind::kData});
    case What::kCome: w.Spend(Fault::kJoin); w.s.life[i] = Life::kUp; return;
  }
}

std::string ToString(const WorldStep& step) {
  static constexpr const char* kNames[] = {
      "sends what arrives at", "asks to be let in by", "is told its loss by", "finds gone", "hears nothing of",
      "misses", "judges", "is answered by", "doubts anew", "has handled a frame of", "has drained", "arrives",
      "tells that it has arrived", "ends the group", "tells its view to", "refuses", "meets again", "settles", "dies",
      "freezes", "thaws", "is parted from", "heals", "heals, frames are lost", "is cut from", "breaks with",
      "doubts wrongly", "calls", "comes"};
  return std::to_string(step.who) + " " + kNames[static_cast<size_t>(step.what)] + " " + std::to_string(step.whom);
}

}  // namespace gradwire::sim
