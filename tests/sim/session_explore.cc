#include "session_explore.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradwire/error.h"
#include "instrumented.h"
#include "session_world.h"

namespace gradwire::sim {
namespace {

using namespace session;
using State = Paths::State;

struct SessionStep {
  int who;
  const char* what;
  LinkId link = 0;
  uint64_t number = 0;
};

std::string TextOf(const SessionStep& step) {
  std::string text = "side " + std::to_string(step.who) + " " + step.what;
  if (step.number > 0) text += " " + std::to_string(step.number);
  if (step.link > 0) text += " on " + std::to_string(step.link);
  return text;
}

const char* WhatIsRead(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kProof: return "reads the Proof of path";
    case Kind::kWelcome: return "reads a Welcome";
    case Kind::kRefuse: return "reads a Refuse";
    case Kind::kMessage: return "reads message";
    case Kind::kPiece: return frame.begun ? "has read a piece of message" : "reads a piece of message";
    case Kind::kAnswer: return "reads an answer about message";
  }
  return "";
}

// Two hashes of a key: states are many, and their keys are long.
struct StateHash {
  explicit StateHash(std::string_view key) : first(std::hash<std::string_view>()(key)) {
    for (const char c : key) second = (second ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  bool operator==(const StateHash&) const = default;
  struct Hash {
    size_t operator()(const StateHash& hash) const { return hash.first; }
  };
  uint64_t first;
  uint64_t second = 0xcbf29ce484222325ull;
};

class SessionRuns {
 public:
  explicit SessionRuns(const SessionBounds& bounds) : bounds_(bounds) { SwitchRules(bounds.mistake); }

  SessionReport Run() {
    SessionReport report;
    try {
      const World start(bounds_);
      Visit(start, StateHash(start.Key(bounds_.full)));
    } catch (const Broken& broken) {
      report.broken = broken.what();
    } catch (const Error& error) {  // of a table: the other side may not say that
      report.broken = std::string("ORDER: ") + error.what();
    }
    if (!report.broken.empty()) {
      for (const SessionStep& step : way_) report.steps.push_back(TextOf(step));
    }
    report.states = on_way_.size();
    for (const auto& [hash, known] : unbroken_) {
      report.unbroken[0] += hash.first;
      report.unbroken[1] += hash.second;
    }
    return report;
  }

 private:
  // Depth first: a state that is met again on its own way is a run without end.

  void Visit(const World& w, const StateHash& hash) {
    if (on_way_.size() > kMostStates) return;
    on_way_.emplace(hash, true);
    if (bounds_.compares && std::ranges::none_of(w.connections, &Connection::cut)) {
      unbroken_.emplace(StateHash(w.Key(/*full=*/false)), true);
    }
    stirs_ = false;
    for (int me = 0; me < 2; ++me) {
      SideSteps(w, me);
      if (w.sides[me].paths.path() != 0) PathSteps(w, me);
      for (const Connection& connection : w.connections) ConnectionSteps(w, me, connection);
    }
    if (!std::exchange(stirs_, true)) CheckRest(w);
    if (w.breaks < bounds_.breaks) Breaks(w);
    on_way_.at(hash) = false;
    stirs_ = true;
  }

  template <class Change>
  void Try(const World& w, SessionStep step, Change change) {
    World next = w;
    way_.push_back(step);
    change(next);
    next.Settle();
    Check(next);
    const StateHash hash(next.Key(bounds_.full));
    const auto known = on_way_.find(hash);
    if (known == on_way_.end()) {
      Visit(next, hash);
    } else {
      Require(!known->second, "TRIES: a run goes on without end");
    }
    stirs_ = true;
    way_.pop_back();
  }

  // What a side does by itself.

  void SideSteps(const World& w, int me) {
    const Side& side = w.sides[me];
    if (side.dialing) Dial(w, me);
    if (side.pausing && !(side.retrying && ProofComes(w, me))) {
      Try(w, {me, "has paused"}, [&](World& next) {
        next.sides[me].pausing = next.sides[me].retrying = false;
        next.Tell(me, [](Paths& p) { return p.OnRetry(); });
      });
    }
    if (w.lacks_memory(me)) {
      Try(w, {me, "has memory"}, [&](World& next) { next.HasMemory(me); });
      if (bounds_.forgets) Try(w, {me, "gets no memory"}, [&](World& next) { next.HasNone(me); });
    }
    if (bounds_.leaves[me] && side.phase == Phase::kLive) {
      Try(w, {me, "leaves"}, [&](World& next) {
        Side& leaver = next.sides[me];
        leaver.phase = Phase::kLeaving;
        leaver.outbox.Push(wire::FrameKind::kLeave, {.bytes = std::string(wire::FrameHeader::kSize, '\0'), .bulk = {}});
        leaver.inbox.Leave();
        next.Answer(me);
      });
    }
    if (side.phase == Phase::kLeaving && MayGo(w, me)) {
      Try(w, {me, "is gone"}, [&](World& next) { next.Depart(me, Phase::kGone); });
    }
  }

  bool MayGo(const World& w, int me) const {
    if (bounds_.mistake != SessionMistake::kGoneAtWrite) return !w.sides[me].outbox.retains();
    for (int piece = 0; piece < bounds_.pieces && bounds_.bulk[me] > 0; ++piece) {
      if (PieceOf(w, me, piece) == Piece::kMissing) return false;
    }
    return !w.sides[me].outbox.has_next();
  }

  // A retry delay is longer than a Proof takes.
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

  void Dial(const World& w, int me) {
    const Phase peer = w.sides[1 - me].phase;
    Try(w, {me, "connects", w.last_id + 1}, [&](World& next) {
      next.sides[me].dialing = false;
      if (peer == Phase::kGone) return next.Tell(me, [](Paths& p) { return p.OnDialFailed(true); });
      const LinkId id = ++next.last_id;
      Connection& made = next.connections.emplace_back();
      made.id = id;
      made.maker = me;
      next.Tell(me, [id](Paths& p) { return p.OnDialed(id); });
      next.Tell(me, [id](Paths& p) { return p.OnChallenge(id); });
    });
  }

  void PathSteps(const World& w, int me) {
    const Side& side = w.sides[me];
    const Side& peer = w.sides[1 - me];
    const LinkId path = side.paths.path();
    const Connection* line = w.Find(path);
    if (side.phase != Phase::kLive && side.phase != Phase::kLeaving) return;
    if (line == nullptr || line->cut || line->ends[1 - me] != End::kOpen) return;
    if (side.outbox.has_next()) Try(w, {me, "sends", path}, [&](World& next) { next.HandOut(me); });
    if (peer.paths.path() != path) return;
    uint64_t acked = peer.inbox.taken();
    if (bounds_.mistake == SessionMistake::kAckBeforeStep) {  // what has come counts, although its step is not done
      for (const Frame& frame : line->into[1 - me]) acked += frame.kind == Kind::kMessage;
    }
    if (acked > side.outbox.acked() && (bounds_.full || acked == w.total(me))) {
      Try(w, {me, "is acknowledged", path, acked}, [&](World& next) { next.sides[me].outbox.Acked(acked); });
    }
  }

  // What a connection brings.

  void ConnectionSteps(const World& w, int me, const Connection& c) {
    const LinkId id = c.id;
    if (c.ends[me] == End::kClosed) return;
    if (!c.into[me].empty()) {
      const Frame& frame = c.into[me].front();
      Try(w, {me, WhatIsRead(frame), id, frame.number}, [&](World& next) { Read(next, me, id); });
    }
    const int other = 1 - me;
    const bool over = (c.cut || c.ends[other] != End::kOpen) && (c.into[me].empty() || c.aborted[other]);
    if (c.ends[me] == End::kClosing || over) {
      Try(w, {me, "finds closed", id}, [&](World& next) {
        next.Find(id)->ends[me] = End::kClosed;
        next.Tell(me, [id](Paths& p) { return p.OnClosed(id); });
      });
    }
  }

  void Read(World& next, int me, LinkId id) {
    Connection& connection = *next.Find(id);
    const Frame frame = connection.into[me].front();
    if (bounds_.slow && frame.kind == Kind::kPiece && !frame.begun) {
      CheckWrite(next.sides[me], frame);
      connection.into[me].front().begun = true;
      next.sides[me].inbox.Place({frame.number, frame.answer.range.storage, frame.answer.range.offset},
                                 frame.answer.range.size);
      return;
    }
    connection.into[me].erase(connection.into[me].begin());
    Side& side = next.sides[me];
    if (connection.ends[me] == End::kClosing && !IsReadOn(frame)) return;
    switch (frame.kind) {
      case Kind::kProof:
        connection.proved = true;
        return next.Tell(me, [&](Paths& p) { return p.OnProof(id, frame.number, *frame.told); });
      case Kind::kWelcome: return next.Tell(me, [&](Paths& p) { return p.OnWelcome(id, *frame.told); });
      case Kind::kRefuse: return ReadRefuse(next, me, id, frame);
      case Kind::kMessage: return ReadMessage(next, me, id, frame);
      case Kind::kPiece: return ReadPiece(next, me, frame);
      case Kind::kAnswer: side.outbox.Answered(frame.answer); break;
    }
    next.Tell(me, [id](Paths& p) { return p.OnFirstFrame(id); });
  }

  // What a side still takes on an older path, where it should no longer: of each kind alone, to see what breaks.
  bool IsReadOn(const Frame& frame) const {
    switch (bounds_.mistake) {
      case SessionMistake::kNoFenceAndDuplicates: return frame.kind == Kind::kMessage;
      case SessionMistake::kNoFenceAndWrittenTwice: return frame.kind == Kind::kPiece;
      default: return true;
    }
  }

  static void ReadRefuse(World& next, int me, LinkId id, const Frame& frame) {
    next.Tell(me, [&](Paths& p) { return p.OnRefused(id, frame.code, frame.number); });
    next.Close(me, id, true);
    Side& side = next.sides[me];
    if (side.paths.state() != State::kEnded || side.phase == Phase::kLeft) return;
    next.Depart(me, side.phase == Phase::kLeaving ? Phase::kGone : Phase::kEnded);
  }

  static void ReadMessage(World& next, int me, LinkId id, const Frame& frame) {
    Side& side = next.sides[me];
    next.Tell(me, [id](Paths& p) { return p.OnFirstFrame(id); });
    Require(side.phase != Phase::kLeft, "LEAVE: a message comes after the last");
    const bool again = frame.number <= side.inbox.taken();
    side.inbox.CheckNext(frame.number);
    Require(!again || side.phase != Phase::kLive, "ONCE: a header step is done twice");
    const bool live = side.phase == Phase::kLive;
    side.done += live;
    std::vector<wire::BulkTarget> storages;
    if (frame.number == static_cast<uint64_t>(next.bounds->bulk[1 - me])) {
      storages.push_back({.size = static_cast<size_t>(next.bounds->pieces) * SwitchedOutbox::kPieceBytes});
    }
    const int complete = live ? static_cast<int>(frame.number) : 0;
    next.Completes(me, side.inbox.Take(frame.number, complete, std::move(storages), /*ready=*/false));
    next.Answer(me);
    next.TakeLeave(me);
  }

  static void CheckWrite(const Side& side, const Frame& piece) {
    const bool complete = (side.complete >> piece.number & 1) != 0 && !side.forgot;
    Require(!complete, "WRITE: bytes are written into a message that is complete");
  }

  void ReadPiece(World& next, int me, const Frame& frame) {
    Side& side = next.sides[me];
    const wire::StorageRange& range = frame.answer.range;
    const wire::BulkPiece piece{frame.number, range.storage, range.offset};
    CheckWrite(side, frame);
    if (!bounds_.slow) side.inbox.Place(piece, range.size);
    if (bounds_.mistake == SessionMistake::kNoFenceAndWrittenTwice &&
        IsThere(next, 1 - me, static_cast<int>(range.offset / SwitchedOutbox::kPieceBytes))) {
      return;
    }
    next.Completes(me, side.inbox.OnPiece(piece, range.size));
    next.Answer(me);
    next.TakeLeave(me);
  }

  void Breaks(const World& w) {
    for (const Connection& c : w.connections) {
      if (c.cut) continue;
      std::array<std::vector<size_t>, 2> kept{std::vector<size_t>{0}, {0}};
      for (int side = 0; side < 2; ++side) {
        const auto& row = c.into[side];
        if (bounds_.full) {
          for (size_t n = 1; n <= row.size(); ++n) kept[side].push_back(n);
        } else if (!row.empty() && row.front().kind == Kind::kProof) {
          kept[side].push_back(1);
        }
      }
      for (const size_t first : kept[0]) {
        for (const size_t second : kept[1]) {
          Try(w, {c.maker, "loses the line", c.id}, [&](World& next) {
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
      const Side &side = w.sides[me], &peer = w.sides[1 - me];
      const bool counts = side.phase == Phase::kLive || side.phase == Phase::kLeaving;
      if (counts && peer.phase != Phase::kGone && peer.phase != Phase::kEnded) CheckRetains(w, me);
      if (side.phase == Phase::kLive || side.phase == Phase::kLeft) {
        Require(side.done >= side.inbox.taken(), "STEP: a message is taken before its header step");
      }
      if (side.phase == Phase::kLeft) {
        Require(!side.inbox.arriving(), "LEAVE: a side has been left and lacks what the other sent");
      }
    }
  }

  void CheckRetains(const World& w, int me) const {
    Require(w.sides[me].outbox.acked() <= w.sides[1 - me].inbox.taken(), "RETAIN: what was not taken is freed");
    for (int piece = 0; piece < bounds_.pieces && bounds_.bulk[me] > 0; ++piece) {
      const Piece own = PieceOf(w, me, piece);
      const bool there = IsThere(w, me, piece);
      Require(own != Piece::kHad || there, "RETAIN: bytes that are not there are freed");
      const bool exact = bounds_.mistake == SessionMistake::kNone;
      Require(!exact || own != Piece::kMissing || !there, "EXACT: bytes are there that were not sent");
    }
  }

  // Nothing can happen any more, but for breaks.
  void CheckRest(const World& w) const {
    for (int me = 0; me < 2; ++me) {
      const Side &side = w.sides[me], &peer = w.sides[1 - me];
      Require(side.phase != Phase::kEnded, "LOSS: a side has ended without a cause");
      if (side.phase == Phase::kLeft || side.phase == Phase::kGone) continue;
      Require(side.phase == Phase::kLive && peer.phase == Phase::kLive, "DEADLOCK: a side waits for one that is gone");
      Require(side.paths.state() == State::kOpen, "DEADLOCK: a side waits for a path");
      const auto all = static_cast<uint64_t>(bounds_.messages[1 - me]);
      Require(side.done == all && side.complete == (2u << all) - 2, "DEADLOCK: not all has arrived");
    }
    for (int me = 0; me < 2; ++me) {
      const Side& side = w.sides[me];
      if (side.phase != Phase::kLive) continue;
      Require(!side.outbox.retains(), "QUIET: what was acknowledged is kept");
      Require(!side.inbox.arriving() && !side.inbox.owes_answers(), "QUIET: something is owed");
      Require(side.paths.path() == w.sides[1 - me].paths.path(), "ONE: two sides at rest use different connections");
      Require(w.connections.size() == 1, "QUIET: a connection that nobody needs");
    }
    for (const Connection& connection : w.connections) {
      Require(connection.into[0].empty() && connection.into[1].empty(), "QUIET: frames that nobody reads");
    }
  }

  using States = std::unordered_map<StateHash, bool, StateHash::Hash>;

  const SessionBounds bounds_;
  States on_way_;  // false: all that follows has been seen
  States unbroken_;
  std::vector<SessionStep> way_;
  bool stirs_ = false;  // something can happen in the state that is visited
};

}  // namespace

SessionReport ExploreSession(const SessionBounds& bounds) { return SessionRuns(bounds).Run(); }

}  // namespace gradwire::sim
