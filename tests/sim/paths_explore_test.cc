// ONE, EXACT, RETAIN, TRIES and DEADLOCK of O3: every run of two real Paths, and each planted mistake found.
#include "paths_explore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "instrumented.h"

namespace gradwire::sim {
namespace {

std::string TraceOfPaths(const PathsReport& report) {
  std::string text = report.broken;
  for (const std::string& step : report.steps) text += "\n  " + step;
  return text;
}

size_t PathsHold(const PathsBounds& bounds) {
  const PathsReport report = ExplorePaths(bounds);
  EXPECT_EQ(report.broken, "") << TraceOfPaths(report);
  std::printf("%zu states\n", report.states);
  return report.states;
}

TEST(PathsExploration, BothConnectAtOnceAndThreeConnectionsBreak) {
  EXPECT_GE(PathsHold({.breaks = 3}), std::min<size_t>(4'000'000, kMostStates));
}

TEST(PathsExploration, OneSideEndsThePairAtAnyMoment) { PathsHold({.messages = 1, .breaks = 2, .ends = true}); }

TEST(PathsExploration, OneSideIsOnlyConnectedTo) { PathsHold({.breaks = 2, .one_sided = true}); }

TEST(PathsExploration, StrangersAreAtThePeersAddress) {
  PathsHold({.messages = 1, .breaks = 1, .strangers = 2, .ends = true});
}

struct PlantedInPaths {
  const char* name;
  PathsMistake mistake;
  const char* breaks;  // how the text of the broken guarantee begins
};

class PathsMistakes : public testing::TestWithParam<PlantedInPaths> {};

TEST_P(PathsMistakes, AreFound) {
  if (kIsInstrumented) GTEST_SKIP() << "not within the states that instrumented code sees";
  const PathsReport report = ExplorePaths({.breaks = 2, .mistake = GetParam().mistake});
  EXPECT_EQ(report.broken.rfind(GetParam().breaks, 0), 0u) << "found instead: " << TraceOfPaths(report);
  EXPECT_FALSE(report.steps.empty());
  std::printf("%s after %zu states\n", report.broken.c_str(), report.states);
}

INSTANTIATE_TEST_SUITE_P(
    Each, PathsMistakes,
    testing::Values(PlantedInPaths{"NoTieBreak", PathsMistake::kNoTieBreak, "TRIES"},
                    PlantedInPaths{"NoAttemptNumbers", PathsMistake::kNoAttemptNumbers, "TRIES"},
                    PlantedInPaths{"PathNumberForgotten", PathsMistake::kPathNumberForgotten, "RETAIN"},
                    PlantedInPaths{"FailedAttemptForgotten", PathsMistake::kFailedAttemptForgotten, "RETAIN"},
                    PlantedInPaths{"NoFence", PathsMistake::kNoFence, "ORDER"},
                    PlantedInPaths{"ProvedBeforeFence", PathsMistake::kProvedBeforeFence, "ORDER"},
                    PlantedInPaths{"StaleRefusalEnds", PathsMistake::kStaleRefusalEnds, "LOSS"},
                    PlantedInPaths{"NoRetryPause", PathsMistake::kNoRetryPause, "TRIES"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
