#include "membership_world.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace gradwire::sim {
namespace {

using Standing = rpc::Membership::Standing;

// How often rounds of one epoch may be begun anew before it counts as for ever.
constexpr uint64_t kMostAttempts = 9;

std::string Name(int worker) { return std::to_string(worker); }

std::string Names(Mask mask) {
  std::string names;
  Each(mask, [&](int x) { names += (names.empty() ? "" : ",") + Name(x); });
  return "{" + names + "}";
}

bool IsReport(const WorldMessage& message, bool of_joins) {
  const auto* report = std::get_if<wire::GroupReport>(&message.group);
  return message.kind == WorldMessage::Kind::kGroup && report && report->joins.empty() != of_joins;
}

bool IsSameRound(const rpc::Membership& before, const rpc::Membership& now) {
  const auto &a = before.round(), &b = now.round();
  return a && b && a->ballot == b->ballot && a->proposing == b->proposing;
}

}  // namespace

World::World(WorldThings& things) : things_(&things), n(things.n) {
  std::memset(&s, 0, sizeof s);
  const auto& all = scenario();
  const auto budget = all.Budget();
  std::copy(budget.begin(), budget.end(), s.budget.begin());
  s.told_to.fill(-1);
  s.contact.fill(-1);
  const Mask members = Bit(all.workers) - 1;
  const uint32_t empty = things.NumberOf(std::vector<uint32_t>());
  s.channels.fill(empty);
  for (int i = 0; i < n; ++i) {
    const bool joins = i >= all.workers;
    s.tables[i] = things.NumberOf(rpc::Membership(things.id(i), things.SetOf(joins ? 0 : members), all.partition,
                                                  RulesWith(things.mistake)));
    s.life[i] = joins ? Life::kDead : Life::kUp;  // a newcomer is not there yet
  }
}

void World::Put(int from, int to, const WorldMessage& message) {
  if (IsOut(to) || (!scenario().late && (s.cut[to] & Bit(from)) != 0)) return;
  const uint32_t number = things_->NumberOf(message);
  std::vector<uint32_t> channel = messages(from, to);
  if (IsReport(message, false)) {  // one at a time, of what is suspected when it goes
    std::erase_if(channel, [&](uint32_t old) { return IsReport(things_->message(old), false); });
  }
  if (std::find(channel.begin(), channel.end(), number) == channel.end()) channel.push_back(number);
  s.channels[from * n + to] = things_->NumberOf(channel);
}

void World::Clear(int from, int to) { s.channels[from * n + to] = things_->NumberOf(std::vector<uint32_t>()); }

void World::Step(int i, Event event, int about, uint32_t message, Mask reached, Mask gone) {
  const uint32_t before = s.tables[i];
  const WorldThings::After& after = things_->Step(before, event, about, message, reached, gone);
  s.tables[i] = after.table;
  for (const auto& action : after.actions) {
    switch (action.kind) {
      case WorldThings::Action::Kind::kSend: Put(i, action.worker, things_->message(action.message)); break;
      case WorldThings::Action::Kind::kEndSession: OnEndSession(i, action.worker); break;
      case WorldThings::Action::Kind::kDecided: CheckDecision(i, action.lost); break;
      case WorldThings::Action::Kind::kEnded: OnEnded(i, action.why); break;
    }
  }
  const rpc::Membership& old = things_->facts(before).table;
  const rpc::Membership& now = facts(i).table;
  if (now.promised().attempt > kMostAttempts) {
    throw BrokenGuarantee("ENDS: rounds of epoch " + std::to_string(now.epoch()) + " outbid each other for ever");
  }
  if (now.epoch() < old.epoch()) throw BrokenGuarantee("AGREE: " + Name(i) + " goes back to an older view");
  if (now.epoch() != old.epoch() && facts(i).in) OnView(i);
}

void World::CheckDecision(int i, Mask lost) const {
  Each(lost & ~Mask{s.excused}, [&](int x) {
    if (!IsOut(x)) {
      throw BrokenGuarantee("NOBODY: " + Name(i) + " declares " + Name(x) +
                            " lost, which was neither frozen nor cut off");
    }
  });
}

void World::OnEnded(int i, Standing why) {
  if (why == Standing::kCut || why == Standing::kLost) {
    if ((s.excused & Bit(i)) == 0) {
      throw BrokenGuarantee("NOBODY: " + Name(i) + " ends its part, and was neither frozen nor cut off");
    }
  }
  for (int from = 0; from < n; ++from) Clear(from, i);
  s.hand[i] = s.to_drain[i] = s.asked[i] = 0;
  if (i == kOwner) s.waiting.fill(0);
}

void World::OnView(int i) {
  const auto& mine = facts(i);
  for (int j = 0; j < n; ++j) {
    const auto& other = facts(j);
    if (j == i || s.life[j] == Life::kDead || !other.in || other.table.epoch() != mine.table.epoch()) continue;
    if (other.members != mine.members && scenario().partition != rpc::Partition::kEvery) {
      throw BrokenGuarantee("AGREE: " + Name(i) + " and " + Name(j) + " have different views " + Names(mine.members) +
                            " and " + Names(other.members) + " of one epoch");
    }
  }
  const int clash = scenario().clash;
  if (clash >= 0 && (mine.members & Bit(clash)) != 0 && mine.members >> scenario().workers != 0) {
    throw BrokenGuarantee("AGREE: " + Name(i) + " has a view with two workers of one rank");
  }
  if (i != kOwner) return;
  for (int x = 0; x < n; ++x) {
    if (s.waiting[x] != 0) WaitFor(x, s.waiting[x] & mine.members);
  }
}

// Sessions with the lost, and Reconcile (rule 8 of references).

void World::OnEndSession(int i, int x) {
  if (!has(MembershipMistake::kNoFence)) Clear(x, i);
  if (s.contact[x] == i) s.contact[x] = -1;
  if (scenario().data == 0) return;
  s.to_drain[i] |= Bit(x);
  if (has(MembershipMistake::kReconcileEarly) && i == kOwner) StartReconcile(x);
}

void World::Drained(int i, int x) {
  s.to_drain[i] &= ~Bit(x);
  if (i == kOwner && !has(MembershipMistake::kReconcileEarly)) StartReconcile(x);
  if ((s.asked[i] & Bit(x)) != 0) AnswerReconcile(i, x);
}

void World::StartReconcile(int x) {
  const auto& t = facts(kOwner);
  if (((s.hand[kOwner] | t.members) & Bit(x)) != 0) {
    throw BrokenGuarantee("DRAIN: the owner asks Reconcile before it has handled the last frame of " + Name(x));
  }
  const Mask others = t.members & ~Bit(kOwner);
  Each(others, [&](int other) {
    Put(kOwner, other, {.kind = WorldMessage::Kind::kReconcile, .epoch = t.table.epoch(), .worker = x});
  });
  WaitFor(x, others);
}

void World::OnReconcile(int i, uint64_t epoch, int x) {
  const auto& t = facts(i);
  const bool knows = t.table.epoch() >= epoch && ((t.members | s.to_drain[i]) & Bit(x)) == 0;
  if (knows || has(MembershipMistake::kAnswerEarly)) return AnswerReconcile(i, x);
  s.asked[i] |= Bit(x);
}

void World::AnswerReconcile(int i, int x) {
  if (((facts(i).members | s.hand[i]) & Bit(x)) != 0) {
    throw BrokenGuarantee("DRAIN: " + Name(i) + " answers Reconcile and may still handle frames of " + Name(x));
  }
  s.asked[i] &= ~Bit(x);
  Put(i, kOwner, {.kind = WorldMessage::Kind::kAnswer, .worker = x});
}

void World::WaitFor(int x, Mask left) {
  s.waiting[x] = static_cast<uint8_t>(left);
  if (left != 0) return;
  Each(facts(kOwner).members, [&](int i) {
    const auto& t = facts(i);
    if (s.life[i] != Life::kDead && t.in && ((t.members | s.hand[i]) & Bit(x)) != 0) {
      throw BrokenGuarantee("R3: values are freed while " + Name(i) + " still handles frames of " + Name(x));
    }
  });
  s.done |= Bit(x);
}

void World::EndWait(int worker, int x) {
  if (s.waiting[x] != 0) WaitFor(x, s.waiting[x] & ~Bit(worker));
}

// One message.

// What a handshake decides: who is in no view of the receiver is refused.
bool World::LetsIn(int to, int from, const WorldMessage& message) const {
  const auto& t = facts(to);
  if (message.kind == WorldMessage::Kind::kRefuse) return true;
  if (message.kind == WorldMessage::Kind::kGroup) {
    if (t.table.LetsIn(things_->id(from), message.group)) return true;
  } else if ((t.members & Bit(from)) != 0 || t.table.standing() == Standing::kJoining) {
    return true;
  }
  return (t.removed & Bit(from)) != 0 && has(MembershipMistake::kNoFence);
}

bool World::Deliverable(int from, int to) const {
  const auto& channel = messages(from, to);
  if (channel.empty() || s.life[to] != Life::kUp || ((s.cut[to] | s.hand[to]) & Bit(from)) != 0) return false;
  const auto& t = facts(to);
  if (t.out) return false;
  // Of a member of a later view than the receiver has: its handshake waits for that view.
  return ((t.members | t.removed) & Bit(from)) != 0 || facts(from).table.epoch() <= t.table.epoch() ||
         LetsIn(to, from, message(channel.front()));
}

void World::Deliver(int from, int to) {
  const int at = from * n + to;
  std::vector<uint32_t> channel = messages(from, to);
  const uint32_t number = channel.front();
  channel.erase(channel.begin());
  s.channels[at] = things_->NumberOf(channel);
  if (channel.empty()) s.flush &= ~(1u << at);
  const WorldMessage m = message(number);
  const auto& t = facts(to);
  if (!LetsIn(to, from, m)) {
    if (has(MembershipMistake::kSilentFence)) return;
    return Put(to, from, {.kind = WorldMessage::Kind::kRefuse, .epoch = t.table.epoch()});
  }
  switch (m.kind) {
    case WorldMessage::Kind::kData:
      if ((t.members & Bit(from)) == 0) {
        throw BrokenGuarantee("FENCE: " + Name(to) + " handles a frame of " + Name(from) + ", which it knows is lost");
      }
      Step(to, Event::kHeard, from);
      s.hand[to] |= Bit(from);
      return;
    case WorldMessage::Kind::kReconcile: return OnReconcile(to, m.epoch, m.worker);
    case WorldMessage::Kind::kAnswer: return EndWait(from, m.worker);
    case WorldMessage::Kind::kArrive: s.arrived[to] |= Bit(from); return;
    case WorldMessage::Kind::kFinish: return Leave(to);
    case WorldMessage::Kind::kRefuse: {
      const bool knows_better = (t.removed & Bit(from)) != 0;
      Step(to, Event::kRefused, from, number);
      if (!knows_better || !facts(to).out) return;
      throw BrokenGuarantee("ONE SIDE: " + Name(to) + " ends its part on the word of one that it has removed");
    }
    case WorldMessage::Kind::kGroup: break;
  }
  Mask reached = 0, gone = 0;
  if (const auto* ask = std::get_if<wire::GroupAsk>(&m.group)) {
    Each(things_->MaskOf(ask->wanted) & ~Bit(to), [&](int x) {
      if (Answers(x, to)) reached |= Bit(x);
      if (IsOut(x) && (s.cut[to] & Bit(x)) == 0) gone |= Bit(x);
    });
  }
  Step(to, Event::kMessage, from, number, reached, gone);
}

// Shutdown (M2).

void World::Leave(int i) {
  s.phase[i] = 2;
  Step(i, Event::kLeave);
}

void World::Finish(int i) {
  const auto& t = facts(i);
  Each(t.members & ~t.gone, [&](int j) {
    if (!IsOut(j) && s.phase[j] == 0) {
      throw BrokenGuarantee("M2: " + Name(i) + " ends the group before " + Name(j) + ", which lives, has arrived");
    }
    if (j != i) Put(i, j, {.kind = WorldMessage::Kind::kFinish});
  });
  Leave(i);
}

// What may go wrong.

void World::NoteFault() {
  s.flush = 0;
  for (int at = 0; at < n * n; ++at) {
    if (Deliverable(at / n, at % n)) s.flush |= 1u << at;
  }
}

void World::Kill(int x) {
  s.life[x] = Life::kDead;
  for (int from = 0; from < n; ++from) Clear(from, x);
  s.hand[x] = s.to_drain[x] = s.asked[x] = 0;
  if (x == kOwner) s.waiting.fill(0);
  NoteFault();
}

void World::Freeze(int x) {
  s.life[x] = Life::kFrozen;
  s.excused |= Bit(x);
  NoteFault();
}

void World::Thaw(int x) {
  s.life[x] = Life::kUp;
  Step(x, Event::kSlept);
}

void World::Part(Mask a, Mask b) {
  Each(a, [&](int i) { s.cut[i] |= b; });
  Each(b, [&](int i) { s.cut[i] |= a; });
  const auto budget = scenario().Budget();
  const bool alone = std::count(budget.begin(), budget.end(), 0) == static_cast<int>(kFaultKinds) - 1;
  Mask excused = a | b;
  if (alone && scenario().partition == rpc::Partition::kMajority) {  // the partition is all that goes wrong
    Mask here = 0;
    for (int i = 0; i < n; ++i) here |= IsOut(i) ? 0 : Bit(i);
    const rpc::Membership whole(things_->id(0), things_->SetOf(here));
    excused &= ~(whole.IsQuorum(things_->SetOf(a), {}) ? a : b);
  }
  s.excused |= static_cast<uint8_t>(excused);
  NoteFault();
}

void World::CutPair(int a, int b) {
  s.cut[a] |= Bit(b);
  s.cut[b] |= Bit(a);
  int faults = 0;
  for (int left : scenario().Budget()) faults += left;
  if (faults > 1) s.excused |= Bit(a) | Bit(b);  // with the others' help alone it is nobody's end
  NoteFault();
}

void World::Heal(bool frames_lost) {
  const auto cut = s.cut;
  s.cut.fill(0);
  const auto since = s.tables;
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) {
      if ((cut[a] & Bit(b)) == 0) continue;
      if (!scenario().late) {  // whoever waited for the other has waited long enough; beats go again
        for (const auto& [i, x] : {std::pair{a, b}, std::pair{b, a}}) {
          if (s.life[i] == Life::kUp && !IsOut(i)) {
            if (IsSameRound(things_->facts(since[i]).table, facts(i).table) && (facts(i).pending & Bit(x)) != 0) {
              Step(i, Event::kMissed, x);
            }
            Step(i, Answers(x, i) ? Event::kMet : Event::kPathLost, x);
            if (s.contact[i] == x) s.contact[i] = -1;
          }
        }
      } else if (frames_lost && (!messages(a, b).empty() || !messages(b, a).empty())) {
        BreakPair(a, b, Event::kDark);
      }
    }
  }
}

// The connection is gone with all that was on its way; another can be made.
void World::BreakPair(int a, int b, Event how) {
  Clear(a, b);
  Clear(b, a);
  for (const auto& [i, x] : {std::pair{a, b}, std::pair{b, a}}) {
    if (IsOut(i)) continue;
    Step(i, how, x);
    if (i == kOwner) {
      for (int y = 0; y < n; ++y) {
        if ((s.waiting[y] & Bit(x)) == 0) continue;
        Put(kOwner, x, {.kind = WorldMessage::Kind::kReconcile, .epoch = facts(kOwner).table.epoch(), .worker = y});
      }
    }
    if (s.told_to[i] == x) s.told_to[i] = -1;
    if (s.contact[i] == x) s.contact[i] = -1;
  }
}

// Nothing more can happen.
void World::CheckRest() const {
  Mask serving = 0;
  for (int i = 0; i < n; ++i) {
    if (s.life[i] == Life::kUp && facts(i).in) serving |= Bit(i);
  }
  if (scenario().shutdown && serving != 0) throw BrokenGuarantee("M2: at rest " + Names(serving) + " wait for ever");
  Each(serving, [&](int i) {
    const auto& t = facts(i);
    Each(serving, [&](int j) {
      const auto& other = facts(j);
      // Each side goes on; what is joined again refuses each other for good.
      const bool apart = scenario().partition == rpc::Partition::kEvery &&
                         ((t.removed & Bit(j)) != 0 || (other.removed & Bit(i)) != 0);
      if (!apart && (other.table.epoch() != t.table.epoch() || other.members != t.members)) {
        throw BrokenGuarantee("AGREE: at rest " + Name(i) + " has the view " + Names(t.members) + ", " + Name(j) +
                              " has " + Names(other.members));
      }
    });
    if ((t.members & ~serving) != 0) {
      throw BrokenGuarantee("ENDS: at rest the view " + Names(t.members) + " of " + Name(i) +
                            " has some that do not serve");
    }
    if (t.table.round() || ((t.suspects | t.reported | t.gone) & t.members) != 0) {
      throw BrokenGuarantee("ENDS: at rest " + Name(i) + " still suspects " +
                            Names(t.suspects | t.reported | t.gone));
    }
    if ((t.parted & ~Mask{s.cut[i]}) != 0) {
      throw BrokenGuarantee("ENDS: at rest " + Name(i) + " does not use a pair that is whole");
    }
    const bool waits = std::any_of(s.waiting.begin(), s.waiting.end(), [](uint8_t left) { return left != 0; });
    if (s.to_drain[i] != 0 || s.asked[i] != 0 || (i == kOwner && waits)) {
      throw BrokenGuarantee("DRAIN: at rest " + Name(i) + " waits for ever for a Reconcile");
    }
    if (scenario().data > 0 && i == kOwner && (t.removed & ~Mask{s.done}) != 0) {
      throw BrokenGuarantee("R3: the owner never frees what a lost worker held");
    }
  });
  for (int j = scenario().workers; j < n; ++j) {
    if (s.life[j] != Life::kUp || facts(j).table.standing() != Standing::kJoining) continue;
    Each(serving, [&](int i) {
      if (Answers(i, j)) throw BrokenGuarantee("ENDS: at rest " + Name(j) + " still waits to be let in");
    });
  }
}

}  // namespace gradwire::sim
