// A1, A3, C1: every interleaving of backward passes on the real tables, and each rule that is switched off noticed.
#include "participant_explore.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "instrumented.h"

namespace gradwire::sim {
namespace {

std::string TraceOf(const PassReport& report) {
  std::string text = report.broken;
  for (const std::string& step : report.steps) text += "\n  " + step;
  return text;
}

void HoldsEverywhere(const PassBounds& bounds) {
  const PassReport report = ExplorePasses(bounds);
  EXPECT_EQ(report.broken, "") << TraceOf(report);
  std::printf("%zu states\n", report.states);
}

struct Bounded {
  const char* name;
  PassBounds bounds;
};

class PassExploration : public testing::TestWithParam<Bounded> {};

TEST_P(PassExploration, EveryBackwardEndsAndNothingIsLeft) { HoldsEverywhere(GetParam().bounds); }

constexpr PassGraph kChain = PassGraph::kChain, kDiamond = PassGraph::kDiamond, kLine = PassGraph::kLine;
INSTANTIATE_TEST_SUITE_P(Each, PassExploration,
                         testing::Values(Bounded{"MeetingWithoutFaults", {.graph = PassGraph::kMeeting}},
                                         Bounded{"ChainDeath", {.graph = kChain, .deaths = 1}},
                                         Bounded{"DiamondDeath", {.graph = kDiamond, .deaths = 1}},
                                         Bounded{"ChainEndOfAWorker", {.graph = kChain, .closes = 1}},
                                         Bounded{"DiamondEndOfAWorker", {.graph = kDiamond, .closes = 1}},
                                         Bounded{"LineBrokenPair", {.graph = kLine, .breaks = 1}},
                                         Bounded{"LineBrokenPairAndNode",
                                                 {.graph = kLine, .breaks = 1, .node_failures = 1}},
                                         Bounded{"LineDeathAndRefusal", {.graph = kLine, .deaths = 1, .refusals = 1}},
                                         Bounded{"ChainNode", {.graph = kChain, .node_failures = 1}},
                                         Bounded{"DiamondNode", {.graph = kDiamond, .node_failures = 1}},
                                         Bounded{"ChainRefusal", {.graph = kChain, .refusals = 1}},
                                         Bounded{"ChainInterrupt", {.graph = kChain, .interrupts = 1}},
                                         Bounded{"ChainRelease", {.graph = kChain, .releases = 1}},
                                         Bounded{"ChainTwoStarters", {.graph = kChain, .second_pass = true}}),
                         [](const auto& info) { return std::string(info.param.name); });

struct Planted {
  const char* name;
  PassMistake mistake;
  PassBounds bounds;
  const char* breaks;  // how the text of the broken guarantee begins
};

class PassRuleSwitchedOff : public testing::TestWithParam<Planted> {};

TEST_P(PassRuleSwitchedOff, IsNoticed) {
  if (kIsInstrumented) GTEST_SKIP() << "not within the states that instrumented code sees";
  const Planted& planted = GetParam();
  const PassReport with = ExplorePasses(planted.bounds, planted.mistake);
  EXPECT_EQ(with.broken.rfind(planted.breaks, 0), 0u) << "found instead: " << TraceOf(with);
  EXPECT_FALSE(with.steps.empty());
}

constexpr PassBounds kNoFault{.graph = kChain}, kRefusal{.graph = kChain, .refusals = 1};
constexpr PassBounds kDiamondNode{.graph = kDiamond, .node_failures = 1};
constexpr PassBounds kLineRefusal{.graph = kLine, .refusals = 1}, kLineDeath{.graph = kLine, .deaths = 1};
INSTANTIATE_TEST_SUITE_P(
    Each, PassRuleSwitchedOff,
    testing::Values(Planted{"AnswerWhenAllBelowHave", PassMistake::kAnswerAtOnce, kNoFault, "A1"},
                    Planted{"AwaitReceipts", PassMistake::kNoReceipts, kLineRefusal, "A3"},
                    Planted{"CommitWhenAllAreDone", PassMistake::kCommitEarly, kNoFault, "A3"},
                    Planted{"AbortAlongMarks", PassMistake::kAbortStops, kRefusal, "A3"},
                    Planted{"AbortAwaitsNodes", PassMistake::kAbortAtOnce, kDiamondNode, "A3"},
                    Planted{"RefuseWhenFailing", PassMistake::kLeaveUnanswered, kRefusal, "A3"},
                    Planted{"EndWithTheStarter", PassMistake::kOutliveTheStarter, kLineDeath, "A3"},
                    Planted{"EndWithAMarker", PassMistake::kOutliveAMarker, kLineDeath, "A3"},
                    Planted{"TellWhyItEnded", PassMistake::kForgetWhy, {.graph = kLine, .breaks = 1}, "A3"},
                    Planted{"PoisonWhenHalfCommitted", PassMistake::kHalfCommitted, kRefusal, "A3"},
                    Planted{"CloseEndsWaits", PassMistake::kCloseLeavesWaits, {.graph = kLine, .closes = 1}, "C1"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
