// What can happen next in a World of membership tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "membership_world.h"

namespace gradwire::sim {

enum class Urgency : uint8_t {
  kDo,    // will happen
  kLate,  // will happen when nothing else can
  kMay,   // may happen or not
};

enum class What : uint8_t {
  kDeliver,
  kAskIn,
  kToldLoss,
  kFindGone,
  kLoseSight,
  kMiss,
  kJudge,
  kAnswered,
  kRecheck,
  kHandled,
  kDrained,
  kArrive,
  kTellArrival,
  kFinish,
  kTellView,
  kRefuse,
  kMeet,
  kSettle,
  kDie,
  kFreeze,
  kThaw,
  kPart,
  kHeal,
  kHealLossy,
  kCutPair,
  kBreakPair,
  kDoubt,
  kCall,
  kCome,
};

struct WorldStep {
  What what;
  Urgency urgency;
  int who = 0;
  Mask whom = 0;  // a worker, or a mask of them for kLoseSight, kMiss, kPart
};

std::vector<WorldStep> NextSteps(World& world);
void Take(World& world, const WorldStep& step);
std::string ToString(const WorldStep& step);

}  // namespace gradwire::sim
