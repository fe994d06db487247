// All interleavings of the membership protocol of docs/membership.md on the real table (M1): what goes wrong, who is
// declared lost, and whether all come to say the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rpc/membership.h"

namespace gradwire::sim {

enum class Fault : uint8_t {
  kDeath,
  kFreeze,     // and a thaw at any later time
  kPartition,  // in any two sides; it heals at any later time
  kPairCut,    // one pair has no network between it
  kBreak,      // a connection with all that is under way on it; the next one works
  kDoubt,      // a worker takes another for silent without any cause
  kData,       // no fault: a frame of the program
  kJoin,       // no fault: a newcomer
};
constexpr size_t kFaultKinds = 8;

// How much may happen in one run.
struct MembershipScenario {
  int workers = 3;
  int deaths = 0, freezes = 0, partitions = 0, pair_cuts = 0, breaks = 0, doubts = 0, data = 0, joins = 0;
  int clash = -1;         // the newcomer wants the rank of this one
  bool shutdown = false;  // all arrive at a shutdown, at any time
  bool late = true;       // what is sent over a cut line may arrive after it has healed
  bool quiet = false;     // only those watch that must, and a partition is noticed at once
  rpc::Partition partition = rpc::Partition::kMajority;

  std::array<int, kFaultKinds> Budget() const {
    return {deaths, freezes, partitions, pair_cuts, breaks, doubts, data, joins};
  }
};

// One planted change of the protocol each. The first ones switch a rule of the table off (rpc::MembershipRules), the
// others change what the driver of the table or the layers above do.
enum class MembershipMistake : uint8_t {
  kNone,
  kNoQuorum,
  kTieToBoth,
  kDeadCount,
  kLivingHalf,
  kStuckCounts,
  kDarkIsStuck,
  kNoPromise,
  kNoAccept,
  kEnoughAccept,
  kNoInherit,
  kNoIndirect,
  kBreakIsLoss,
  kStaleRound,
  kNoDoubt,
  kSilentFence,      // the lost are told nothing, by nobody
  kAnyEpoch,
  kRefuseByAnyone,
  kJoinOver,
  kNoFence,          // frames of the lost are handled
  kReconcileEarly,   // the owner asks before it has drained the lost one
  kAnswerEarly,      // others answer before they have
  kToldOnce,         // views do not spread with beats
  kWaitForEver,      // a round that was promised to is waited for although its proposer is no more
  kNoWait,           // it is not waited for at all
  kNoRecheck,        // who lived for others is never doubted anew
};

rpc::MembershipRules RulesWith(MembershipMistake mistake);

struct MembershipReport {
  size_t states = 0;               // different ones visited, up to the broken guarantee if there is one
  bool complete = false;           // all were visited
  std::string broken;              // empty: every guarantee held in every state
  std::vector<std::string> steps;  // that led to it
};

// Stops after `limit` states.
MembershipReport Explore(const MembershipScenario& scenario, MembershipMistake mistake = MembershipMistake::kNone,
                         size_t limit = 5'000'000);

}  // namespace gradwire::sim
