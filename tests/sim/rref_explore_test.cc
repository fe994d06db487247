// R1, R2: every interleaving of the RRef protocol on the real tables, and each planted mistake found.
#include "rref_explore.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace gradwire::sim {
namespace {

// Instrumented code explores the same kinds of runs, one share less: a tenth of the states.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShares = 2;
constexpr size_t kAtLeast = 2'000;
#else
constexpr int kShares = 3;
constexpr size_t kAtLeast = 37'832;  // as many as the smaller model that the protocol was designed with
#endif

std::string Trace(const ExploreReport& report) {
  std::string text = report.broken;
  for (const std::string& step : report.steps) text += "\n  " + step;
  return text;
}

size_t HoldsEverywhere(const ExploreBounds& bounds) {
  const ExploreReport report = Explore(bounds);
  EXPECT_EQ(report.broken, "") << Trace(report);
  std::printf("%zu states\n", report.states);
  return report.states;
}

TEST(RRefExploration, OneValueThreeUsersThreeSharesKeepR1AndR2) {
  EXPECT_GE(HoldsEverywhere({.shares = kShares}), kAtLeast);
}

TEST(RRefExploration, FetchThroughALiveHandleGetsTheValue) { HoldsEverywhere({.shares = kShares, .fetches = 1}); }

TEST(RRefExploration, FetchesConfirmsFailedCreationsAndStrayDropsTogether) {
  HoldsEverywhere({.shares = kShares - 1, .fetches = 1, .confirms = 1, .strays = 1, .failures = true});
}

TEST(RRefExploration, TwoValuesOfOneCreatorWithFetch) {
  HoldsEverywhere({.second = SecondValue::kOfSameCreator, .shares = kShares - 1, .fetches = 1});
}

TEST(RRefExploration, TwoValuesOfOneCreatorWithConfirm) {
  HoldsEverywhere({.second = SecondValue::kOfSameCreator, .shares = kShares - 1, .confirms = 1});
}

TEST(RRefExploration, AValueOfAUserAndOneOfTheOwner) {
  HoldsEverywhere({.second = SecondValue::kOfOwner, .shares = kShares - 1, .fetches = 1, .confirms = 1});
}

struct Planted {
  const char* name;
  Mistake mistake;
  ExploreBounds bounds;
  const char* breaks;  // how the text of the broken guarantee begins
};

class RRefMistake : public testing::TestWithParam<Planted> {};

TEST_P(RRefMistake, IsFoundAndNothingIsFoundWithoutIt) {
  const Planted& planted = GetParam();
  const ExploreReport with = Explore(planted.bounds, planted.mistake);
  EXPECT_EQ(with.broken.rfind(planted.breaks, 0), 0u) << "found instead: " << Trace(with);
  EXPECT_FALSE(with.steps.empty());
  HoldsEverywhere(planted.bounds);
}

INSTANTIATE_TEST_SUITE_P(
    Each, RRefMistake,
    testing::Values(Planted{"DropBeforeAdd", Mistake::kDropBeforeAdd, {.shares = 2}, "R1"},
                    Planted{"LateHold", Mistake::kLateHold, {.shares = 2}, "R1"},
                    Planted{"NoTombstone", Mistake::kNoTombstone, {.shares = 2}, "R2"},
                    // Live workers send nothing about what is gone, but for a stray drop.
                    Planted{"TombstoneAfterFree", Mistake::kTombstoneAfterFree, {.shares = 2, .strays = 1}, "R2"},
                    Planted{"FetchBeforeCreate", Mistake::kFetchBeforeCreate, {.shares = 2, .fetches = 1}, "R1"},
                    Planted{"FetchKeepsNothing", Mistake::kFetchKeepsNothing, {.shares = 2, .fetches = 1}, "C1"},
                    Planted{"ConfirmAtOnce", Mistake::kConfirmAtOnce, {.shares = 2, .confirms = 1}, "rule 4"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
