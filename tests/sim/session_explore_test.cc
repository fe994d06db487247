// O3: every run of two sessions' tables over connections that break, and each planted mistake found.
#include "session_explore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "instrumented.h"

namespace gradwire::sim {
namespace {

std::string TraceOfSession(const SessionReport& report) {
  std::string text = report.broken;
  for (const std::string& step : report.steps) text += "\n  " + step;
  return text;
}

SessionReport SessionHolds(const SessionBounds& bounds) {
  SessionReport report = ExploreSession(bounds);
  EXPECT_EQ(report.broken, "") << TraceOfSession(report);
  std::printf("%zu states\n", report.states);
  return report;
}

TEST(SessionExploration, ThreeMessagesEachWayWithBulkAndTwoBreaks) {
  const SessionReport report = SessionHolds({.bulk = {2, 2}, .breaks = 2});
  EXPECT_GT(report.states, std::min<size_t>(1'500'000, kMostStates) - 1);
}

TEST(SessionExploration, APieceAndAFenceTakeTime) { SessionHolds({.breaks = 2, .slow = true}); }

TEST(SessionExploration, ThreeBreaks) { SessionHolds({.messages = {2, 2}, .breaks = 3, .slow = true}); }

TEST(SessionExploration, MemoryThatIsNotToBeHad) {
  SessionHolds({.messages = {2, 2}, .bulk = {1, 1}, .pieces = 2, .breaks = 1, .forgets = true, .slow = true});
}

TEST(SessionExploration, OneSideLeavesAtAnyMoment) {
  SessionHolds({.breaks = 2, .leaves = {true, false}});
  SessionHolds({.bulk = {0, 2}, .breaks = 2, .leaves = {true, false}});
}

TEST(SessionExploration, BothLeaveAtAnyMoment) {
  SessionHolds({.messages = {2, 2}, .bulk = {1, 1}, .pieces = 2, .breaks = 1, .leaves = {true, true}});
}

// What is left out of the count is not left out of what can happen.
TEST(SessionExploration, ReductionsLoseNoState) {
  if (kIsInstrumented) GTEST_SKIP() << "not within the states that instrumented code sees";
  for (const bool leaves : {false, true}) {
    SessionBounds bounds{.messages = {2, 1}, .bulk = {1, 0}, .breaks = leaves ? 1 : 2, .compares = true};
    bounds.leaves = {leaves, false};
    const SessionReport reduced = SessionHolds(bounds);
    bounds.full = true;
    const SessionReport full = SessionHolds(bounds);
    EXPECT_LT(reduced.states, full.states);
    EXPECT_EQ(reduced.unbroken, full.unbroken);
    EXPECT_NE(reduced.unbroken, (std::array<uint64_t, 2>{}));
  }
}

struct PlantedInSession {
  const char* name;
  SessionMistake mistake;
  const char* breaks;  // how the text of the broken guarantee begins
  SessionBounds bounds = {.messages = {2, 2}, .bulk = {1, 0}, .breaks = 1, .full = true};
};

class SessionMistakes : public testing::TestWithParam<PlantedInSession> {};

TEST_P(SessionMistakes, AreFound) {
  if (kIsInstrumented) GTEST_SKIP() << "not within the states that instrumented code sees";
  SessionBounds bounds = GetParam().bounds;
  EXPECT_EQ(ExploreSession(bounds).broken, "") << "without the mistake";
  bounds.mistake = GetParam().mistake;
  const SessionReport report = ExploreSession(bounds);
  EXPECT_EQ(report.broken.rfind(GetParam().breaks, 0), 0u) << "found instead: " << TraceOfSession(report);
  EXPECT_FALSE(report.steps.empty());
  std::printf("%s after %zu states\n", report.broken.c_str(), report.states);
}

using M = SessionMistake;
constexpr SessionBounds kHeaders{.messages = {2, 2}, .bulk = {0, 0}, .breaks = 1, .full = true};
constexpr SessionBounds kSlow{.messages = {1, 1}, .bulk = {1, 0}, .breaks = 1, .slow = true, .full = true};
constexpr SessionBounds kOneLeaves{
    .messages = {1, 1}, .bulk = {1, 0}, .breaks = 1, .leaves = {true, false}, .full = true};
constexpr SessionBounds kBothLeave{.messages = {2, 2}, .bulk = {0, 0}, .breaks = 0, .leaves = {true, true}};
constexpr SessionBounds kBothLeaveWithBulk{
    .messages = {1, 1}, .bulk = {1, 1}, .pieces = 1, .breaks = 0, .leaves = {true, true}};

INSTANTIATE_TEST_SUITE_P(
    Each, SessionMistakes,
    testing::Values(PlantedInSession{"FreedAtWrite", M::kFreedAtWrite, "RETAIN"},
                    PlantedInSession{"BulkFreedWithHeader", M::kBulkFreedWithHeader, "RETAIN"},
                    PlantedInSession{"ResumeFromSent", M::kResumeFromSent, "DEADLOCK"},
                    PlantedInSession{"ResumeFromAcked", M::kResumeFromAcked, "ORDER"},
                    PlantedInSession{"ParkedOverResume", M::kParkedOverResume, "DEADLOCK"},
                    PlantedInSession{"AnswersOverResume", M::kAnswersOverResume, "ORDER"},
                    PlantedInSession{"NowForgotten", M::kNowForgotten, "DEADLOCK"},
                    PlantedInSession{"NowBeforeWelcome", M::kNowBeforeWelcome, "DEADLOCK"},
                    PlantedInSession{"LeaverCountsNothing", M::kLeaverCountsNothing, "DEADLOCK", kBothLeave},
                    PlantedInSession{"LeaverParks", M::kLeaverParks, "DEADLOCK", kBothLeaveWithBulk},
                    PlantedInSession{"AckBeforeStep", M::kAckBeforeStep, "RETAIN"},
                    PlantedInSession{"NoFence", M::kNoFence, "ORDER"},
                    PlantedInSession{"NoFenceAndDuplicates", M::kNoFenceAndDuplicates, "ONCE", kHeaders},
                    PlantedInSession{"NoFenceAndWrittenTwice", M::kNoFenceAndWrittenTwice, "WRITE", kSlow},
                    PlantedInSession{"GoneAtWrite", M::kGoneAtWrite, "LEAVE", kOneLeaves},
                    PlantedInSession{"LeaveOvertakes", M::kLeaveOvertakes, "LEAVE", kOneLeaves}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
