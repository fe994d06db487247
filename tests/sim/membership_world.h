// The world around the membership tables of a few workers, for exploring all that can happen: ordered channels between
// pairs; deaths, freezes, partitions, broken pairs, false alarms, newcomers; and what the layers above do with a loss.
//
// There is no time: a limit may pass at any moment at which what it waits for cannot come (its sender is dead, frozen
// or cut off, and nothing of it is on its way), but not before what was sent before the fault has arrived. The detector
// of silence may be wrong all the same: see `doubts` and `breaks`.
//
// States are small numbers: tables, messages and channels are kept once, each under its number.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "membership_explore.h"
#include "rpc/membership.h"

namespace gradwire::sim {

constexpr int kMostWorkers = 5;
constexpr int kOwner = 1;  // whose Reconcile rounds are watched
using Mask = uint32_t;     // of workers, one bit each

constexpr Mask Bit(int worker) { return Mask{1} << worker; }

template <class Visit>
void Each(Mask mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(__builtin_ctz(mask));
}

struct BrokenGuarantee : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Small numbers for things that are often the same.
template <class Thing>
class Numbered {
 public:
  // `make` is called for what is new.
  template <class Make>
  uint32_t operator()(std::string key, Make make) {
    const auto [at, is_new] = numbers_.try_emplace(std::move(key), static_cast<uint32_t>(things_.size()));
    if (is_new) things_.push_back(make());
    return at->second;
  }
  const Thing& operator[](uint32_t number) const { return things_[number]; }
  size_t size() const { return things_.size(); }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::deque<Thing> things_;  // references to them stay
};

// What is under way. All but the first two kinds stand for layers above the table.
struct WorldMessage {
  enum class Kind : uint8_t { kGroup, kRefuse, kData, kReconcile, kAnswer, kArrive, kFinish };
  Kind kind = Kind::kData;
  wire::GroupMessage group;
  uint64_t epoch = 0;  // of kRefuse, kReconcile
  int worker = 0;      // of kReconcile, kAnswer
};

// What the world asks of a table again and again.
struct TableFacts {
  rpc::Membership table;
  bool out, in, acts, stands_alone, wants_to_judge;
  int target;  // -1: nobody
  Mask members, suspects, gone, parted, reported, removed, pending;
};

enum class Life : uint8_t { kUp, kFrozen, kDead };

// Without padding, so that its bytes can be hashed.
struct WorldState {
  std::array<uint32_t, kMostWorkers> tables;
  std::array<uint32_t, kMostWorkers * kMostWorkers> channels;  // [from * n + to]
  uint32_t flush;                                              // channels with what was sent before the last fault
  std::array<Life, kMostWorkers> life;
  std::array<uint8_t, kMostWorkers> cut;                       // who is cut from whom
  std::array<uint8_t, kFaultKinds> budget;
  std::array<uint8_t, kMostWorkers> hand;                      // whose data frame is in its header step
  std::array<uint8_t, kMostWorkers> to_drain;                  // sessions that have ended but are not drained
  std::array<uint8_t, kMostWorkers> asked;                     // unanswered Reconcile(x)
  std::array<uint8_t, kMostWorkers> waiting;                   // of the owner, for each x: who has not answered
  std::array<uint8_t, kMostWorkers> phase, arrived;            // of a shutdown
  std::array<int8_t, kMostWorkers> told_to;                    // the leader that knows of the arrival; -1: nobody
  std::array<int8_t, kMostWorkers> contact;                    // whom a newcomer has asked
  uint8_t excused;                                             // who was frozen or cut off
  uint8_t done;                                                // x for which the owner has all answers
};

enum class Event : uint8_t {
  kBroken,
  kDark,
  kGone,
  kHeard,
  kMet,
  kPathLost,
  kStuck,
  kMissed,
  kSettled,
  kRecheck,
  kSlept,
  kAnswered,
  kJudge,
  kMessage,
  kRefused,
  kLeave,
};

// All tables, messages and channels of one exploration.
class WorldThings {
 public:
  WorldThings(const MembershipScenario& scenario, MembershipMistake mistake);

  uint32_t NumberOf(rpc::Membership table);
  uint32_t NumberOf(const WorldMessage& message);
  uint32_t NumberOf(const std::vector<uint32_t>& channel);
  const TableFacts& facts(uint32_t number) const { return tables_[number]; }
  const WorldMessage& message(uint32_t number) const { return messages_[number]; }
  const std::vector<uint32_t>& channel(uint32_t number) const { return channels_[number]; }

  Mask MaskOf(const WorkerSet& workers) const;
  WorkerSet SetOf(Mask mask) const;
  int IndexOf(WorkerId worker) const;
  WorkerId id(int index) const { return ids_[index]; }

  struct Action {
    enum class Kind : uint8_t { kSend, kEndSession, kDecided, kEnded } kind;
    int worker = 0;        // of kSend, kEndSession
    uint32_t message = 0;  // of kSend
    Mask lost = 0;         // of kDecided
    rpc::Membership::Standing why{};
  };
  struct After {
    uint32_t table = 0;
    std::vector<Action> actions;
  };
  // What the event makes of the table. Each is stepped once.
  const After& Step(uint32_t table, Event event, int worker, uint32_t message, Mask reached, Mask gone);

  const MembershipScenario scenario;
  const MembershipMistake mistake;
  const int n;

 private:
  After StepTable(rpc::Membership table, Event event, int worker, uint32_t message, Mask reached, Mask gone);

  std::vector<WorkerId> ids_;
  Numbered<TableFacts> tables_;
  Numbered<WorldMessage> messages_;
  Numbered<std::vector<uint32_t>> channels_;
  std::unordered_map<std::string, After> steps_;
};

// One state, and what can be done to it. Throws BrokenGuarantee.
class World {
 public:
  explicit World(WorldThings& things);  // how it begins
  World(WorldThings& things, const WorldState& state) : s(state), things_(&things), n(things.n) {}

  const TableFacts& facts(int worker) const { return things_->facts(s.tables[worker]); }
  const std::vector<uint32_t>& messages(int from, int to) const {
    return things_->channel(s.channels[from * n + to]);
  }
  const WorldMessage& message(uint32_t number) const { return things_->message(number); }
  const MembershipScenario& scenario() const { return things_->scenario; }
  bool has(MembershipMistake mistake) const { return things_->mistake == mistake; }
  WorldThings& things() { return *things_; }
  bool IsOut(int x) const { return s.life[x] == Life::kDead || facts(x).out; }
  bool Answers(int x, int to) const {
    return s.life[x] == Life::kUp && facts(x).in && (s.cut[to] & Bit(x)) == 0;
  }

  void Put(int from, int to, const WorldMessage& message);
  void Clear(int from, int to);
  void Step(int worker, Event event, int about = 0, uint32_t message = 0, Mask reached = 0, Mask gone = 0);

  // One message.
  bool Deliverable(int from, int to) const;
  void Deliver(int from, int to);

  // Sessions with the lost, and Reconcile (rule 8 of references).
  void Drained(int worker, int x);

  // Shutdown (M2).
  void Leave(int worker);
  void Finish(int worker);

  // What may go wrong.
  void Spend(Fault fault) { --s.budget[static_cast<size_t>(fault)]; }
  void Kill(int x);
  void Freeze(int x);
  void Thaw(int x);
  void Part(Mask a, Mask b);
  void CutPair(int a, int b);
  void Heal(bool frames_lost);
  void BreakPair(int a, int b, Event how);

  void CheckRest() const;

  WorldState s;

 private:
  bool LetsIn(int to, int from, const WorldMessage& message) const;
  void OnReconcile(int worker, uint64_t epoch, int x);
  void AnswerReconcile(int worker, int x);
  void StartReconcile(int x);
  void WaitFor(int x, Mask left);
  void OnEndSession(int worker, int x);
  void OnEnded(int worker, rpc::Membership::Standing why);
  void OnView(int worker);
  void CheckDecision(int worker, Mask lost) const;
  void NoteFault();
  void EndWait(int worker, int x);

  WorldThings* things_;

 public:
  const int n;
};

}  // namespace gradwire::sim
