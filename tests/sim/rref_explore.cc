#include "rref_explore.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "digest_set.h"
#include "rref_model.h"
#include "rref_network.h"

namespace gradwire::sim {
namespace {

// "U shares value 0 with V".
struct Step {
  int who;
  const char* what;
  int value = -1;
  int whom = -1;
};

std::string ToString(const Step& step) {
  std::string text = std::string(kWorkerNames[step.who]) + " " + step.what;
  if (step.value >= 0) text += " value " + std::to_string(step.value);
  if (step.whom >= 0) text += std::string(" -> ") + kWorkerNames[step.whom];
  return text;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kCreate: return "handles the creation of";
    case Kind::kCreateReply: return "learns of the creation of";
    case Kind::kAdd: return "handles an AddFork of";
    case Kind::kDrop: return "handles a DropFork of";
    case Kind::kArgument: return "gets an argument that is";
    case Kind::kGive: return "gets a handle of";
    case Kind::kFetch: return "handles a Fetch of";
    case Kind::kFetchReply: return "gets";
    case Kind::kConfirm: return "handles a Confirm of";
    case Kind::kConfirmReply: return "gets the answer to a Confirm of";
    case Kind::kAsk: return "gets a Reconcile of";
    case Kind::kAnswer: return "gets an answer to a Reconcile of";
    case Kind::kMembers: return "asks about the lost for";
  }
  return "";
}

class Explorer {
 public:
  explicit Explorer(const ExploreBounds& bounds) : bounds_(bounds), model_(bounds.second, bounds.late) {}

  ExploreReport Run() {
    ExploreReport report;
    try {
      World start;
      model_.Create(start, 0);
      IsNew(start);
      Visit(start);
    } catch (const Broken& broken) {
      report.broken = broken.what();
      for (const Step& step : path_) report.steps.push_back(ToString(step));
    }
    report.states = seen_.size();
    return report;
  }

 private:
  using World = Model::World;
  using Owner = Model::Owner;

  // The exploration, depth first: the path is the trace of what broke.

  void Visit(const World& w) {
    CheckLive(w);
    CheckRest(w);
    for (int from = 0; from < kWorkers; ++from) {
      for (int to = 0; to < kWorkers; ++to) {
        if (w.channels[from][to].empty()) continue;
        const Message& m = w.channels[from][to].front();
        Try(w, {to, NameOf(m.kind), m.value}, [&](World& next) { model_.Deliver(next, from, to); });
      }
    }
    OwnerSteps(w);
    for (int user = kFirstUser; user < kWorkers; ++user) {
      LossSteps(w, user);
      for (const ForkId& fork : w.users[user]->Forks()) UserSteps(w, user, fork);
    }
  }

  template <class Change>
  void Try(const World& w, Step step, Change change) {
    World next = w;
    path_.push_back(step);
    change(next);
    if (IsNew(next)) Visit(next);
    path_.pop_back();
  }

  bool IsNew(const World& w) {
    w.WriteKey(key_);
    return seen_.Insert(key_);
  }

  // Losses of a user.

  void LossSteps(const World& w, int user) {
    if (w.Counts(user) && std::popcount(w.dead) < bounds_.deaths) Deaths(w, user, {}, 0);
    if (w.Counts(user) && std::popcount(w.outcast) < bounds_.outcasts) {
      Try(w, {kOwner, "declares lost", -1, user}, [&](World& next) { model_.CastOut(next, user); });
    }
    for (int who = 0; who < kWorkers; ++who) {
      if (!w.Counts(who) || who == user || Has(w.lost[who], user)) continue;
      const bool drained = Has(w.dead, user) && w.channels[user][who].empty();
      if (!drained && !Has(w.outcast, user)) continue;
      Try(w, {who, "has lost", -1, user}, [&](World& next) { model_.Lose(next, who, user); });
    }
  }

  // Each way to lose suffixes of what it sent, to those from `other` on.
  void Deaths(const World& w, int user, std::array<size_t, kWorkers> kept, int other) {
    if (other == kWorkers) return Try(w, {user, "dies"}, [&](World& next) { model_.Die(next, user, kept); });
    for (size_t n = 0; n <= w.channels[user][other].size(); ++n) {
      kept[other] = n;
      Deaths(w, user, kept, other + 1);
    }
  }

  // What the programs do.

  void OwnerSteps(const World& w) {
    for (int v = 0; v < kValues; ++v) {
      const Phase phase = w.values[v].phase;
      if (phase == Phase::kUnborn && bounds_.second == SecondValue::kOfSameCreator && w.Counts(kFirstUser)) {
        Try(w, {kFirstUser, "creates", v}, [&](World& next) { model_.Create(next, v); });
      }
      if (phase == Phase::kUnborn && bounds_.second == SecondValue::kOfOwner) {
        Try(w, {kOwner, "is about to share its own", v}, [&](World& next) { model_.CreateLocal(next, v); });
      }
      if (phase == Phase::kMaking) {
        Try(w, {kOwner, "has made", v}, [&](World& next) { model_.Make(next, v, false); });
        if (bounds_.failures) Try(w, {kOwner, "fails to make", v}, [&](World& next) { model_.Make(next, v, true); });
      }
      if (w.values[v].early > 0) {
        Try(w, {kOwner, "takes the late hold on", v}, [&](World& next) { model_.TakeLateHold(next, v); });
      }
      if (w.owner->hold_count(model_.rref(v)) > 0) OwnerHandleSteps(w, v);
    }
  }

  void OwnerHandleSteps(const World& w, int v) {
    Try(w, {kOwner, "releases a handle of", v}, [&](World& next) { model_.Release(next, v); });
    if (w.fetches < bounds_.fetches) {
      Try(w, {kOwner, "waits for", v}, [&](World& next) { model_.WaitOnOwner(next, v); });
    }
    for (int to = kFirstUser; to < kWorkers && w.shares < bounds_.shares; ++to) {
      if (Has(w.lost[kOwner], to)) continue;
      Try(w, {kOwner, "gives", v, to}, [&](World& next) { model_.Give(next, v, to); });
    }
  }

  void UserSteps(const World& w, int user, ForkId fork) {
    const int v = model_.ValueOf(w.users[user]->Find(fork)->rref);
    Try(w, {user, "drops a handle of", v}, [&](World& next) { model_.Drop(next, user, fork); });
    if (w.strays < bounds_.strays) {
      Try(w, {user, "drops twice a handle of", v}, [&](World& next) { model_.DropTwice(next, user, fork, v); });
    }
    if (w.fetches < bounds_.fetches) {
      Try(w, {user, "fetches", v}, [&](World& next) { model_.Fetch(next, user, v); });
    }
    if (w.confirms < bounds_.confirms) {
      Try(w, {user, "asks whether O knows of", v}, [&](World& next) { model_.Confirm(next, user, fork); });
    }
    if (w.shares == bounds_.shares) return;
    Try(w, {user, "passes to its owner", v}, [&](World& next) { model_.PassToOwner(next, user, v); });
    for (int to = kFirstUser; to < kWorkers; ++to) {
      if (to == user || Has(w.lost[user], to)) continue;
      Try(w, {user, "shares", v, to}, [&](World& next) { model_.Share(next, user, fork, v, to, false); });
      if (Rules::planted == Mistake::kDropBeforeAdd) {
        Try(w, {user, "drops and shares", v, to}, [&](World& next) { model_.Share(next, user, fork, v, to, true); });
      }
    }
  }

  // The guarantees.

  // R1: what is live or in flight keeps its value, and a confirmed handle is known to the owner.
  void CheckLive(const World& w) const {
    for (int user = kFirstUser; user < kWorkers; ++user) {
      if (!w.Counts(user)) continue;
      for (const ForkId& fork : w.users[user]->Forks()) {
        const auto& held = *w.users[user]->Find(fork);
        RequireKept(w, model_.ValueOf(held.rref), "R1: freed while a handle lives");
        if (held.state != rref::UserTable::State::kConfirmed) continue;
        Require(w.owner->has_fork(held.rref, fork), "rule 4: a handle is confirmed before the owner has its fork");
      }
    }
    for (const auto& to_all : w.channels) {
      for (int to = 0; to < kWorkers; ++to) {
        if (!w.Counts(to)) continue;
        for (const Message& m : to_all[to]) {
          const bool carries = m.kind == Kind::kGive || m.kind == Kind::kArgument || m.kind == Kind::kFetch;
          if (carries) RequireKept(w, m.value, "R1: freed while a message carries it");
        }
      }
    }
    for (int v = 0; v < kValues; ++v) {
      Require(w.values[v].freed <= 1, "R2: freed twice");
      if (w.values[v].early > 0) RequireKept(w, v, "R1: freed between the arrival of an argument and its hold");
    }
  }

  void RequireKept(const World& w, int v, const char* guarantee) const {
    if (w.values[v].phase == Phase::kNever) return;  // R3: the one exception, a clear error at each use
    const RRefId rref = model_.rref(v);
    const rref::Standing standing = w.owner->standing(rref);
    const bool counted = w.owner->fork_count(rref) + w.owner->hold_count(rref) > 0 || w.owner->in_doubt(rref);
    Require(standing == rref::Standing::kHere ? counted : w.values[v].phase == Phase::kSent, guarantee);
  }

  // R2: with nothing in flight the owner counts exactly what is live. With no live handle either its table is empty,
  // each value was freed, each wait has ended.
  void CheckRest(const World& w) const {
    if (!IsQuiet(w)) return;
    const auto counts = w.owner->counts();
    const bool never =
        std::any_of(w.values.begin(), w.values.end(), [](const auto& value) { return value.phase == Phase::kNever; });
    size_t forks = 0;
    for (int user = kFirstUser; user < kWorkers; ++user) {
      if (w.Counts(user)) forks += w.users[user]->counts().forks;
    }
    Require(never || counts.forks == forks, "R2: forks are counted that nobody holds");
    Require(counts.tombstones == 0 || w.strays > 0, "R2: a drop is remembered for ever");
    Require(counts.in_doubt == 0 && counts.awaited == 0, "R2: a doubt does not end");
    for (int v = 0; v < kValues; ++v) {
      const bool ends = w.values[v].phase != Phase::kMaking && w.values[v].early == 0;
      if (!ends || w.owner->hold_count(model_.rref(v)) > 0) return;
    }
    if (forks > 0) return;
    for (int who = 0; who < kWorkers; ++who) {
      if (!w.Counts(who)) continue;
      Require(w.open_fetches[who] == 0, "C1: a fetch is never answered");
      Require(w.open_confirms[who] == 0, "C1: a confirm is never answered");
      Require(w.users[who]->counts().asked == 0, "C1: a Reconcile is never answered");
    }
    Require(counts == Owner::Counts{}, "R2: something is left in the owner's table at rest");
    for (const auto& value : w.values) {
      Require(value.freed == (value.phase == Phase::kMade), "R2: a value is not freed exactly once");
    }
  }

  // Nothing is in flight, and everyone knows who is lost.
  static bool IsQuiet(const World& w) {
    for (const auto& to_all : w.channels) {
      for (const auto& channel : to_all) {
        if (!channel.empty()) return false;
      }
    }
    for (int who = 0; who < kWorkers; ++who) {
      const Workers gone = w.dead | w.outcast;
      if (w.Counts(who) && (w.lost[who] & gone) != gone) return false;
    }
    return true;
  }

  const ExploreBounds bounds_;
  const Model model_;
  DigestSet seen_;
  std::string key_;  // of the state looked at last
  std::vector<Step> path_;
};

}  // namespace

ExploreReport Explore(const ExploreBounds& bounds, Mistake mistake) {
  Rules::planted = mistake;
  return Explorer(bounds).Run();
}

}  // namespace gradwire::sim
