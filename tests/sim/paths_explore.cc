#include "paths_explore.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "instrumented.h"
#include "paths_world.h"

namespace gradwire::sim {
namespace {

using namespace paths;
using State = Paths::State;

const char* WhatReads(Kind kind) {
  switch (kind) {
    case Kind::kChallenge: return "reads a Challenge";
    case Kind::kProof: return "reads a Proof";
    case Kind::kWelcome: return "reads a Welcome";
    case Kind::kRefuse: return "reads a Refuse";
    case Kind::kMessage: return "reads a message";
    case Kind::kAck: return "reads an Ack";
  }
  return "";
}

class PathsRuns {
 public:
  explicit PathsRuns(const PathsBounds& bounds) : bounds_(bounds) {}

  PathsReport Run() {
    PathsReport report;
    try {
      const World start(bounds_);
      Visit(start, start.Key());
    } catch (const Broken& broken) {
      report.broken = broken.what();
      report.steps = way_;
    }
    report.states = on_way_.size();
    return report;
  }

 private:
  // Depth first: a state that is met again on its own way is a run without end.

  void Visit(const World& w, const std::string& key) {
    if (on_way_.size() > kMostStates) return;
    on_way_.emplace(key, true);
    Check(w);
    stirs_ = false;
    for (int me = 0; me < 2; ++me) {
      SideSteps(w, me);
      for (size_t i = 0; i < w.connections.size(); ++i) ConnectionSteps(w, me, w.connections[i]);
    }
    if (!std::exchange(stirs_, true)) CheckRest(w);
    if (w.breaks < bounds_.breaks) Breaks(w);
    on_way_.at(key) = false;
    stirs_ = true;
  }

  template <class Change>
  void Try(const World& w, int me, const char* what, LinkId id, Change change) {
    World next = w;
    way_.push_back("side " + std::to_string(me) + " " + what + (id == 0 ? "" : " on " + std::to_string(id)));
    change(next);
    next.Settle();
    std::string key = next.Key();
    const auto known = on_way_.find(key);
    if (known == on_way_.end()) {
      Visit(next, key);
    } else {
      Require(!known->second, "TRIES: a run goes on without end");
    }
    stirs_ = true;
    way_.pop_back();
  }

  // What a side does by itself.

  void SideSteps(const World& w, int me) {
    const Side& side = w.sides[me];
    if (!side.wanted) {
      Try(w, me, "has messages", 0, [&](World& next) {
        next.sides[me].wanted = true;
        next.Tell(me, [](Paths& p) { return p.OnWanted(); });
      });
    }
    if (side.dialing) DialSteps(w, me);
    if (side.pausing && (bounds_.mistake == PathsMistake::kNoRetryPause || !ProofComes(w, me))) {
      Try(w, me, "has paused", 0, [&](World& next) {
        next.sides[me].pausing = false;
        next.Tell(me, [](Paths& p) { return p.OnRetry(); });
      });
    }
    if (bounds_.ends && me == 0 && side.paths.state() != State::kEnded) {
      Try(w, me, "ends the pair", 0, [&](World& next) {
        next.ended = true;
        next.Tell(me, [](Paths& p) { return p.End(); });
        next.Put(me, side.paths.path(), {.kind = Kind::kRefuse, .code = RefuseCode::kEnded});
        next.Close(me, side.paths.path(), false);
      });
    }
    if (side.paths.state() == State::kOpen) PathSteps(w, me);
  }

  // A pause is longer than a Proof takes.
  static bool ProofComes(const World& w, int me) {
    for (const Connection& connection : w.connections) {
      if (connection.maker == me || connection.ends[me] != End::kOpen) continue;
      if (connection.proved) return true;
      for (const Frame& frame : connection.into[me]) {
        if (frame.kind == Kind::kProof) return true;
      }
    }
    return false;
  }

  void DialSteps(const World& w, int me) {
    const auto dial = [&](World& next, std::vector<Frame> answer, bool there) {
      Connection& made = next.connections.emplace_back();
      made.id = ++next.last_id;
      made.maker = static_cast<uint8_t>(me);
      made.into[me] = std::move(answer);
      if (!there) made.ends[1 - me] = End::kClosed;
      next.sides[me].dialing = false;
      const LinkId id = made.id;
      next.Tell(me, [&](Paths& p) { return p.OnDialed(id); });
    };
    Try(w, me, "connects", w.last_id + 1, [&](World& next) { dial(next, {{.kind = Kind::kChallenge}}, true); });
    if (w.breaks < bounds_.breaks) {
      Try(w, me, "cannot connect", 0, [&](World& next) {
        ++next.breaks;
        next.sides[me].dialing = false;
        next.Tell(me, [](Paths& p) { return p.OnDialFailed(false); });
      });
    }
    if (w.strangers == bounds_.strangers) return;
    const auto stranger = [&](std::vector<Frame> answer) {
      Try(w, me, "connects to a stranger", w.last_id + 1, [&](World& next) {
        ++next.strangers;
        dial(next, answer, false);
      });
    };
    stranger({});
    stranger({{.kind = Kind::kRefuse, .code = RefuseCode::kOtherWorker}});
    stranger({{.kind = Kind::kRefuse, .code = RefuseCode::kStale, .number = 4}});
    stranger({{.kind = Kind::kWelcome, .taken = 9}});  // before the Proof; after it the mac is wrong
  }

  void PathSteps(const World& w, int me) {
    const Side& side = w.sides[me];
    const LinkId path = side.paths.path();
    if (side.next <= bounds_.messages) {
      Try(w, me, "sends a message", path,
          [&](World& next) { next.Put(me, path, {.kind = Kind::kMessage, .number = next.sides[me].next++}); });
    }
    const Side& peer = w.sides[1 - me];
    if (peer.paths.path() == path && peer.taken > side.acked && !World(w).Find(path)->cut) {
      Try(w, me, "is acknowledged", path, [&](World& next) { next.sides[me].acked = peer.taken; });
    }
  }

  // What a connection brings.

  void ConnectionSteps(const World& w, int me, const Connection& c) {
    const LinkId id = c.id;
    if (c.ends[me] == End::kClosed) return;
    if (!c.into[me].empty()) {
      Try(w, me, WhatReads(c.into[me].front().kind), id, [&](World& next) { Read(next, me, id); });
    }
    const int other = 1 - me;
    const bool over = (c.cut || c.ends[other] != End::kOpen) && (c.into[me].empty() || c.aborted[other]);
    if (c.ends[me] == End::kClosing || over) {
      Try(w, me, "has closed", id, [&](World& next) {
        const bool proved = next.sides[me].paths.state() == State::kProved && !c.adopted[me] && c.maker == me;
        const bool was_path = next.sides[me].paths.path() == id;
        next.Find(id)->ends[me] = End::kClosed;
        next.Tell(me, [&](Paths& p) { return p.OnClosed(id); });
        Forget(next, me, proved, was_path);
      });
    }
  }

  void Forget(World& next, int me, bool was_attempt, bool was_path) {
    Paths::Key& promise = rpc::PathsExplorer::promise(next.sides[me].paths);
    if (was_path && bounds_.mistake == PathsMistake::kPathNumberForgotten) promise = {};
    if (was_attempt && bounds_.mistake == PathsMistake::kFailedAttemptForgotten) {
      promise = next.sides[me].adopted_promise;
    }
  }

  void Read(World& next, int me, LinkId id) {
    Connection& connection = *next.Find(id);
    const Frame frame = connection.into[me].front();
    connection.into[me].erase(connection.into[me].begin());
    Side& side = next.sides[me];
    wire::ResumeState told{.taken = frame.taken};
    switch (frame.kind) {
      case Kind::kChallenge: return ReadChallenge(next, me, id);
      case Kind::kWelcome: return next.Tell(me, [&](Paths& p) { return p.OnWelcome(id, told); });
      case Kind::kProof: connection.proved = true; return ReadProof(next, me, id, frame);
      case Kind::kRefuse: return ReadRefuse(next, me, id, frame);
      case Kind::kAck: return next.Tell(me, [&](Paths& p) { return p.OnFirstFrame(id); });
      case Kind::kMessage:
        if (side.paths.state() == State::kEnded) return;
        Require(frame.number == side.taken + 1, "ORDER: another message comes next");
        ++side.taken;
        return next.Tell(me, [&](Paths& p) { return p.OnFirstFrame(id); });
    }
  }

  void ReadChallenge(World& next, int me, LinkId id) {
    if (bounds_.mistake == PathsMistake::kProvedBeforeFence) {
      for (const Connection& older : std::vector<Connection>(next.connections)) {  // they are read on
        if (older.ends[me] == End::kClosing) next.Tell(me, [&](Paths& p) { return p.OnClosed(older.id); });
      }
    }
    next.Tell(me, [&](Paths& p) { return p.OnChallenge(id); });
  }

  void ReadProof(World& next, int me, LinkId id, const Frame& frame) {
    Paths& paths = next.sides[me].paths;
    const LinkId before = paths.path();
    const State state = paths.state();
    Paths::Key& promise = rpc::PathsExplorer::promise(paths);
    const Paths::Key kept = promise;
    const bool takes_any = state != State::kProved || me == 1;
    if (bounds_.mistake == PathsMistake::kNoTieBreak && promise.number == frame.number) --promise.number;
    if (bounds_.mistake == PathsMistake::kNoAttemptNumbers) promise.number = takes_any ? 0 : 0xff;
    next.Tell(me, [&](Paths& p) { return p.OnProof(id, frame.number, {.taken = frame.taken}); });
    if (promise.number == 0xff) promise = kept;
    if (before == 0 || paths.path() == before) return;
    if (bounds_.mistake == PathsMistake::kPathNumberForgotten) promise = {};
    if (bounds_.mistake == PathsMistake::kNoFence) {
      next.Tell(me, [&](Paths& p) { return p.OnClosed(before); });  // it is read on
    }
  }

  void ReadRefuse(World& next, int me, LinkId id, const Frame& frame) {
    if (bounds_.mistake == PathsMistake::kStaleRefusalEnds && frame.code == RefuseCode::kStale) {
      next.Tell(me, [](Paths& p) { return p.End(); });
    } else {
      next.Tell(me, [&](Paths& p) { return p.OnRefused(id, frame.code, frame.number); });
    }
    // The dial goes on at another address.
    const bool elsewhere = frame.code == RefuseCode::kOtherWorker;
    if (elsewhere && next.sides[me].paths.state() == State::kConnecting) next.sides[me].dialing = true;
    if (next.sides[me].paths.state() == State::kEnded) next.Close(me, next.sides[me].paths.path(), true);
    next.Close(me, id, true);
  }

  // Any suffix of what is under way is lost, in either direction.
  void Breaks(const World& w) {
    for (const Connection& c : w.connections) {
      if (c.cut) continue;
      for (size_t first = 0; first <= c.into[0].size(); ++first) {
        for (size_t second = 0; second <= c.into[1].size(); ++second) {
          Try(w, c.maker, "loses the line", c.id, [&](World& next) {
            Connection& cut = *next.Find(c.id);
            cut.cut = true;
            cut.into[0].resize(first);
            cut.into[1].resize(second);
            ++next.breaks;
          });
        }
      }
    }
  }

  // What must hold.

  void Check(const World& w) const {
    for (int me = 0; me < 2; ++me) {
      Require(w.sides[me].acked <= w.sides[1 - me].taken, "RETAIN: a message is freed that was not taken");
    }
  }

  // Nothing can happen any more, but for breaks.
  void CheckRest(const World& w) const {
    const Side &low = w.sides[0], &high = w.sides[1];
    const bool ended = low.paths.state() == State::kEnded || high.paths.state() == State::kEnded;
    if (ended) {
      Require(w.ended, "LOSS: a side has ended without a cause");
      Require(low.paths.state() == high.paths.state(), "LOSS: one side has ended, the other waits");
      Require(w.connections.empty(), "QUIET: a connection that nobody needs");
      return;
    }
    for (const Side* side : {&low, &high}) {
      Require(side->paths.state() == State::kOpen, "DEADLOCK: a side waits for a path");
      Require(side->taken == bounds_.messages && side->acked == bounds_.messages, "DEADLOCK: not all has arrived");
      Require(side->paths.older_open() == 0, "DEADLOCK: an older path is still open");
    }
    Require(low.paths.path() == high.paths.path(), "ONE: two sides at rest use different connections");
    Require(w.connections.size() == 1, "QUIET: a connection that nobody needs");
  }

  const PathsBounds bounds_;
  std::unordered_map<std::string, bool> on_way_;  // false: all that follows has been seen
  std::vector<std::string> way_;
  bool stirs_ = false;  // something can happen in the state that is visited
};

}  // namespace

PathsReport ExplorePaths(const PathsBounds& bounds) { return PathsRuns(bounds).Run(); }

}  // namespace gradwire::sim
