#include "rref_explore.h"

#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

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
  }
  return "";
}

template <Mistake kMistake>
class Explorer {
 public:
  explicit Explorer(const ExploreBounds& bounds) : bounds_(bounds), model_(bounds.second) {}

  ExploreReport Run() {
    ExploreReport report;
    try {
      World start;
      model_.Create(start, 0);
      seen_.insert(start.Key());
      Visit(start);
    } catch (const Broken& broken) {
      report.broken = broken.what();
      for (const Step& step : path_) report.steps.push_back(ToString(step));
    }
    report.states = seen_.size();
    return report;
  }

 private:
  using World = typename Model<kMistake>::World;
  using Owner = typename World::Owner;

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
      for (const ForkId& fork : w.users[user]->Forks()) UserSteps(w, user, fork);
    }
  }

  template <class Change>
  void Try(const World& w, Step step, Change change) {
    World next = w;
    path_.push_back(step);
    change(next);
    if (seen_.insert(next.Key()).second) Visit(next);
    path_.pop_back();
  }

  // What the programs do.

  void OwnerSteps(const World& w) {
    for (int v = 0; v < kValues; ++v) {
      const Phase phase = w.values[v].phase;
      if (phase == Phase::kUnborn && bounds_.second == SecondValue::kOfSameCreator) {
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
      if (to == user) continue;
      Try(w, {user, "shares", v, to}, [&](World& next) { model_.Share(next, user, fork, v, to, false); });
      if constexpr (kMistake == Mistake::kDropBeforeAdd) {
        Try(w, {user, "drops and shares", v, to}, [&](World& next) { model_.Share(next, user, fork, v, to, true); });
      }
    }
  }

  // The guarantees.

  // R1: what is live or in flight keeps its value, and a confirmed handle is known to the owner.
  void CheckLive(const World& w) const {
    for (int user = kFirstUser; user < kWorkers; ++user) {
      for (const ForkId& fork : w.users[user]->Forks()) {
        const auto& held = *w.users[user]->Find(fork);
        RequireKept(w, model_.ValueOf(held.rref), "R1: freed while a handle lives");
        if (held.state != rref::UserTable::State::kConfirmed) continue;
        Require(w.owner->has_fork(held.rref, fork), "rule 4: a handle is confirmed before the owner has its fork");
      }
    }
    for (const auto& to_all : w.channels) {
      for (const auto& channel : to_all) {
        for (const Message& m : channel) {
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
    const rref::Standing standing = w.owner->standing(model_.rref(v));
    const bool counted = w.owner->fork_count(model_.rref(v)) + w.owner->hold_count(model_.rref(v)) > 0;
    Require(standing == rref::Standing::kHere ? counted : w.values[v].phase == Phase::kSent, guarantee);
  }

  // R2: with no live handle and nothing in flight the table is empty, each value was freed, each wait has ended.
  void CheckRest(const World& w) const {
    for (const auto& to_all : w.channels) {
      for (const auto& channel : to_all) {
        if (!channel.empty()) return;
      }
    }
    for (int v = 0; v < kValues; ++v) {
      if (w.values[v].phase == Phase::kMaking || w.values[v].early > 0 || w.owner->hold_count(model_.rref(v)) > 0)
        return;
    }
    for (int user = kFirstUser; user < kWorkers; ++user) {
      if (w.users[user]->counts().forks > 0) return;
    }
    Require(w.open_fetches == 0, "C1: a fetch is never answered");
    Require(w.open_confirms == 0, "C1: a confirm is never answered");
    Require(w.owner->counts() == typename Owner::Counts{}, "R2: something is left in the owner's table at rest");
    for (const auto& value : w.values) {
      Require(value.freed == (value.phase == Phase::kMade), "R2: a value is not freed exactly once");
    }
  }

  const ExploreBounds bounds_;
  const Model<kMistake> model_;
  std::unordered_set<std::string> seen_;
  std::vector<Step> path_;
};

}  // namespace

ExploreReport Explore(const ExploreBounds& bounds, Mistake mistake) {
  switch (mistake) {
    case Mistake::kNone: return Explorer<Mistake::kNone>(bounds).Run();
    case Mistake::kDropBeforeAdd: return Explorer<Mistake::kDropBeforeAdd>(bounds).Run();
    case Mistake::kLateHold: return Explorer<Mistake::kLateHold>(bounds).Run();
    case Mistake::kNoTombstone: return Explorer<Mistake::kNoTombstone>(bounds).Run();
    case Mistake::kTombstoneAfterFree: return Explorer<Mistake::kTombstoneAfterFree>(bounds).Run();
    case Mistake::kFetchBeforeCreate: return Explorer<Mistake::kFetchBeforeCreate>(bounds).Run();
    case Mistake::kFetchKeepsNothing: return Explorer<Mistake::kFetchKeepsNothing>(bounds).Run();
    case Mistake::kConfirmAtOnce: return Explorer<Mistake::kConfirmAtOnce>(bounds).Run();
  }
  throw std::logic_error("no such mistake");
}

}  // namespace gradwire::sim
