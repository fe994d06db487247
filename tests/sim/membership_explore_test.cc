// M1: every interleaving of the membership protocol on the real table, and each planted mistake found.
#include "membership_explore.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "instrumented.h"

namespace gradwire::sim {
namespace {

std::string Trace(const MembershipReport& report) {
  std::string text = report.broken;
  for (const std::string& step : report.steps) text += "\n  " + step;
  return text;
}

// `states`: how many there are at least, as many as in the model that the protocol was designed with, or more.
struct Bounds {
  const char* name;
  MembershipScenario scenario;
  size_t states;
  friend std::ostream& operator<<(std::ostream& out, const Bounds& bounds) { return out << bounds.name; }
};

class MembershipExploration : public testing::TestWithParam<Bounds> {};

TEST_P(MembershipExploration, KeepsEveryGuarantee) {
  const Bounds& bounds = GetParam();
  if (kIsInstrumented && bounds.states > 50'000) GTEST_SKIP() << "too many states for instrumented code";
  const MembershipReport report = Explore(bounds.scenario);
  std::printf("%zu states\n", report.states);
  EXPECT_EQ(report.broken, "") << Trace(report);
  EXPECT_TRUE(report.complete);
  EXPECT_GE(report.states, bounds.states);
}

constexpr rpc::Partition kEvery = rpc::Partition::kEvery;

INSTANTIATE_TEST_SUITE_P(
    All, MembershipExploration,
    testing::Values(
        Bounds{"TwoFreeze", {.workers = 2, .freezes = 1}, 43},
        Bounds{"TwoPartition", {.workers = 2, .partitions = 1}, 83},
        Bounds{"TwoFreezePartition", {.workers = 2, .freezes = 1, .partitions = 1}, 2'000},
        Bounds{"TwoDoubtFreezePartition", {.workers = 2, .freezes = 1, .partitions = 1, .doubts = 1}, 7'000},
        Bounds{"TwoFreezeDeath", {.workers = 2, .deaths = 1, .freezes = 1}, 200},
        Bounds{"TwoDeaths", {.deaths = 2}, 487}, Bounds{"Freeze", {.freezes = 1}, 1'569},
        Bounds{"Partition", {.partitions = 1}, 220'000}, Bounds{"PairCut", {.pair_cuts = 1}, 1'135},
        Bounds{"TwoPairCuts", {.pair_cuts = 2, .late = false}, 130'000}, Bounds{"TwoBreaks", {.breaks = 2}, 6'748},
        Bounds{"TwoFalseAlarms", {.doubts = 2}, 1'700}, Bounds{"DeathAndFreeze", {.deaths = 1, .freezes = 1}, 85'085},
        Bounds{"FreezeAndFalseAlarm", {.freezes = 1, .doubts = 1}, 260'000},
        Bounds{"FreezeAndBreak", {.freezes = 1, .breaks = 1}, 1'200'000},
        Bounds{"DeathAndBreak", {.deaths = 1, .breaks = 1}, 12'000},
        Bounds{"DeathAndPairCut", {.deaths = 1, .pair_cuts = 1}, 70'000},
        Bounds{"DeathAndTwoPairCuts", {.deaths = 1, .pair_cuts = 2, .late = false, .quiet = true}, 1'200'000},
        Bounds{"DeathAndPartition", {.deaths = 1, .partitions = 1, .late = false}, 140'000},
        Bounds{"EachSideGoesOn", {.partitions = 1, .late = false, .partition = kEvery}, 8'000},
        Bounds{"FourTwoDeaths", {.workers = 4, .deaths = 2}, 64'309},
        Bounds{"FourFreeze", {.workers = 4, .freezes = 1}, 30'000},
        Bounds{"FourPairCut", {.workers = 4, .pair_cuts = 1}, 8'000},
        Bounds{"FourPartition", {.workers = 4, .partitions = 1, .late = false, .quiet = true}, 600'000},
        Bounds{"DrainAfterTwoDeaths", {.deaths = 2, .data = 2}, 18'000},
        Bounds{"DrainAfterFreeze", {.freezes = 1, .data = 1}, 38'000},
        Bounds{"DrainAfterPartition", {.partitions = 1, .data = 1, .late = false}, 157'000},
        Bounds{"TwoAndNewcomer", {.workers = 2, .joins = 1}, 23},
        Bounds{"NewcomerAndDeath", {.deaths = 1, .joins = 1}, 98'318},
        Bounds{"NewcomerTakesRankOfTheLast", {.deaths = 1, .joins = 1, .clash = 2}, 12'000},
        Bounds{"NewcomerTakesRankOfTheFirst", {.deaths = 1, .joins = 1, .clash = 0}, 12'000},
        Bounds{"NewcomerTakesRankTwoDeaths", {.workers = 2, .deaths = 2, .joins = 1, .clash = 1}, 600},
        Bounds{"NewcomerTakesRankOfTheFrozen", {.workers = 2, .freezes = 1, .joins = 1, .clash = 1}, 3'000},
        Bounds{"NewcomerAndPartition", {.workers = 2, .partitions = 1, .joins = 1, .late = false}, 46'000},
        Bounds{"ShutdownAndTwoDeaths", {.deaths = 2, .shutdown = true}, 28'027},
        Bounds{"ShutdownAndFreeze", {.freezes = 1, .shutdown = true}, 100'000},
        Bounds{"FourShutdownAndDeath", {.workers = 4, .deaths = 1, .shutdown = true, .quiet = true}, 370'000}),
    [](const auto& info) { return std::string(info.param.name); });

struct Planted {
  const char* name;
  MembershipMistake mistake;
  MembershipScenario scenario;
  const char* breaks;  // how the text of the broken guarantee begins
  friend std::ostream& operator<<(std::ostream& out, const Planted& planted) { return out << planted.name; }
};

class MembershipMistakes : public testing::TestWithParam<Planted> {};

TEST_P(MembershipMistakes, IsFound) {
  if (kIsInstrumented) GTEST_SKIP() << "finding it takes long in instrumented code";
  const Planted& planted = GetParam();
  const MembershipReport report = Explore(planted.scenario, planted.mistake);
  std::printf("%zu states: %s\n", report.states, report.broken.c_str());
  EXPECT_EQ(report.broken.rfind(planted.breaks, 0), 0u) << "found instead: " << Trace(report);
  EXPECT_FALSE(report.steps.empty());
}

using Mistake = MembershipMistake;

// These bounds are explored above without the mistake, but for those of EnoughAccept and AnyEpoch: they have more than
// three and five million states.
INSTANTIATE_TEST_SUITE_P(
    Each, MembershipMistakes,
    testing::Values(
        Planted{"NoQuorum", Mistake::kNoQuorum, {.partitions = 1}, "NOBODY"},
        Planted{"TieToBoth", Mistake::kTieToBoth, {.workers = 2, .partitions = 1}, "NOBODY"},
        Planted{"DeadCount", Mistake::kDeadCount, {.deaths = 2}, "NOBODY"},
        Planted{
            "LivingHalf", Mistake::kLivingHalf, {.deaths = 1, .pair_cuts = 2, .late = false, .quiet = true}, "AGREE"},
        Planted{"StuckCounts", Mistake::kStuckCounts, {.workers = 2, .freezes = 1}, "NOBODY"},
        Planted{"DarkIsStuck", Mistake::kDarkIsStuck, {.workers = 2, .freezes = 1, .partitions = 1}, "AGREE"},
        Planted{"NoPromise", Mistake::kNoPromise, {.deaths = 1, .pair_cuts = 2, .late = false, .quiet = true}, "AGREE"},
        Planted{"NoAccept", Mistake::kNoAccept, {.deaths = 1, .freezes = 1}, "AGREE"},
        Planted{
            "EnoughAccept", Mistake::kEnoughAccept, {.deaths = 1, .freezes = 1, .joins = 1, .quiet = true}, "AGREE"},
        Planted{"NoInherit", Mistake::kNoInherit, {.workers = 4, .deaths = 2}, "AGREE"},
        Planted{"NoIndirect", Mistake::kNoIndirect, {.pair_cuts = 1}, "NOBODY"},
        Planted{"BreakIsLoss", Mistake::kBreakIsLoss, {.breaks = 2}, "NOBODY"},
        Planted{
            "StaleRound", Mistake::kStaleRound, {.workers = 2, .freezes = 1, .partitions = 1, .doubts = 1}, "AGREE"},
        Planted{"NoDoubt", Mistake::kNoDoubt, {.workers = 2, .freezes = 1, .partitions = 1}, "AGREE"},
        Planted{"SilentFence", Mistake::kSilentFence, {.workers = 2, .freezes = 1}, "AGREE"},
        Planted{"AnyEpoch", Mistake::kAnyEpoch, {.deaths = 1, .doubts = 1, .joins = 1, .quiet = true}, "AGREE"},
        Planted{"RefuseByAnyone",
                Mistake::kRefuseByAnyone,
                {.partitions = 1, .late = false, .partition = kEvery},
                "ONE SIDE"},
        Planted{"JoinOver", Mistake::kJoinOver, {.workers = 2, .freezes = 1, .joins = 1, .clash = 1}, "AGREE"},
        Planted{"NoFence", Mistake::kNoFence, {.freezes = 1, .data = 1}, "FENCE"},
        Planted{"ReconcileEarly", Mistake::kReconcileEarly, {.deaths = 2, .data = 2}, "DRAIN"},
        Planted{"AnswerEarly", Mistake::kAnswerEarly, {.deaths = 2, .data = 2}, "DRAIN"},
        Planted{"ToldOnce", Mistake::kToldOnce, {.deaths = 1, .partitions = 1, .late = false}, "AGREE"},
        Planted{"WaitForEver", Mistake::kWaitForEver, {.deaths = 1, .freezes = 1}, "ENDS"},
        Planted{"NoWait", Mistake::kNoWait, {.pair_cuts = 1}, "ENDS"},
        Planted{"NoRecheck", Mistake::kNoRecheck, {.freezes = 1, .doubts = 1}, "ENDS"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
