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
constexpr size_t kAtLeast = 2'000, kAtLeastWithDeath = 50'000;
#else
constexpr int kShares = 3;
// As many as the smaller model that the protocol was designed with.
constexpr size_t kAtLeast = 37'832, kAtLeastWithDeath = 598'052;
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

TEST(RRefExploration, FetchesConfirmsFailedCreationsAndStrayDropsTogether) {
  HoldsEverywhere({.shares = kShares - 1, .fetches = 1, .confirms = 1, .strays = 1, .failures = true});
}

TEST(RRefExploration, TwoValuesOfOneCreatorWithFetch) {
  HoldsEverywhere({.second = SecondValue::kOfSameCreator, .shares = kShares - 1, .fetches = 1});
}

TEST(RRefExploration, TwoValuesOfOneCreatorWithFetchAndConfirm) {
  HoldsEverywhere({.second = SecondValue::kOfSameCreator, .shares = kShares - 2, .fetches = 1, .confirms = 1});
}

TEST(RRefExploration, AValueOfAUserAndOneOfTheOwner) {
  HoldsEverywhere({.second = SecondValue::kOfOwner, .shares = kShares - 1, .fetches = 1, .confirms = 1});
}

// R3: the same with users that die at any point, or that are declared lost while they live.

TEST(RRefExploration, ADeathAtAnyPoint) {
  EXPECT_GE(HoldsEverywhere({.shares = kShares, .deaths = 1}), kAtLeastWithDeath);
}

TEST(RRefExploration, TwoDeathsAndAnOwnerThatTakesItsTime) {
  HoldsEverywhere({.shares = kShares - 1, .deaths = 2, .late = true});
}

TEST(RRefExploration, OneIsDeclaredLostWhileItLivesAndAnotherDies) {
  HoldsEverywhere({.shares = kShares - 1, .deaths = 1, .outcasts = 1});
}

TEST(RRefExploration, DeathsWithFetchesConfirmsAndFailedCreations) {
  HoldsEverywhere({.shares = kShares - 2, .fetches = 1, .confirms = 1, .failures = true, .deaths = 2, .late = true});
}

TEST(RRefExploration, ADeathWithAValueOfAUserAndOneOfTheOwner) {
  HoldsEverywhere({.second = SecondValue::kOfOwner, .shares = kShares - 1, .deaths = 1});
}

TEST(RRefExploration, DeathsWithTwoValuesOfOneCreator) {
  HoldsEverywhere({.second = SecondValue::kOfSameCreator, .shares = kShares - 2, .deaths = 2});
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
  const bool is_part_of_one_above = planted.bounds.deaths + planted.bounds.outcasts > 0;
  if (!is_part_of_one_above) HoldsEverywhere(planted.bounds);
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

constexpr ExploreBounds kOneDeath{.shares = 2, .deaths = 1}, kTwoDeaths{.shares = 2, .deaths = 2};
constexpr ExploreBounds kLate{.shares = 2, .deaths = 1, .late = true}, kOutcast{.shares = 2, .outcasts = 1};

INSTANTIATE_TEST_SUITE_P(OfRule8, RRefMistake,
                         testing::Values(Planted{"ForksOfTheLostStay", Mistake::kForksOfTheLostStay, kOneDeath, "R2"},
                                         Planted{"NoDoubt", Mistake::kNoDoubt, kOneDeath, "R1"},
                                         Planted{"NoLateDoubt", Mistake::kNoLateDoubt, kOneDeath, "R1"},
                                         Planted{"ForksForTheLost", Mistake::kForksForTheLost, kOneDeath, "R2"},
                                         Planted{"TombstonesForTheLost", Mistake::kTombstonesForTheLost, kOneDeath,
                                                 "R2"},
                                         Planted{"DropsMissAnswers", Mistake::kDropsMissAnswers, kLate, "R2"},
                                         Planted{"NoDoubtBySilence", Mistake::kNoDoubtBySilence, kTwoDeaths, "R1"},
                                         Planted{"FirstAnswerEnds", Mistake::kFirstAnswerEnds, kOutcast, "R1"},
                                         Planted{"FirstRoundEnds", Mistake::kFirstRoundEnds, kTwoDeaths, "R1"},
                                         Planted{"AsksAboutTheLast", Mistake::kAsksAboutTheLast, kTwoDeaths, "R1"},
                                         Planted{"AnswersOnlyAdd", Mistake::kAnswersOnlyAdd, kOneDeath, "R2"},
                                         Planted{"NoFence", Mistake::kNoFence, kOutcast, "R1"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
