// Whole workers under faults: the guarantees that are listed below hold, whatever breaks and when. GRADWIRE_SIM_SEEDS
// says how many runs there are, GRADWIRE_SIM_FIRST which is the first, GRADWIRE_SIM_SHOW=1 which one goes on and what
// breaks in it.
#include "sim/job_faults.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

namespace gradwire::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSeeds = 30;  // each takes thirty times as long
#else
constexpr int kSeeds = 300;
#endif

int Given(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void RunAll(JobOptions (*options)(uint64_t seed)) {
  JobReport all;
  int failed = 0;
  StayOnThisProcessor();
  const int first = Given("GRADWIRE_SIM_FIRST", 0), seeds = Given("GRADWIRE_SIM_SEEDS", kSeeds);
  for (int seed = first; seed < first + seeds; ++seed) {
    JobOptions of_seed = options(static_cast<uint64_t>(seed));
    of_seed.shows = Given("GRADWIRE_SIM_SHOW", 0) != 0;
    if (of_seed.shows) std::cout << "seed " << seed << std::endl;
    auto job = std::make_unique<Job>(std::move(of_seed));
    const JobReport report = job->Run();
    for (const std::string& violation : report.violations) ADD_FAILURE() << violation;
    all.steps += report.steps;
    all.ends_by_error += report.ends_by_error;
    for (const auto& [guarantee, times] : report.checks) all.checks[guarantee] += times;
    if (!report.violations.empty()) {
      static_cast<void>(job.release());  // what waits for ever cannot be taken down
      if (++failed == 20) break;
    }
  }
  std::cout << all.steps << " steps, " << all.ends_by_error << " ends by error; checked:";
  for (const auto& [guarantee, times] : all.checks) std::cout << " " << guarantee << " " << times;
  std::cout << std::endl;
  for (const char* const guarantee : {"A1", "A7", "C1", "M2", "O1", "O3", "O4", "R1", "R2"}) {
    EXPECT_GT(all.checks[guarantee], 0u) << guarantee;
  }
}

TEST(Job, NothingFailsWhenNobodyIsLost) { RunAll(WithoutLoss); }
TEST(Job, HoldsUnderTwoFaults) { RunAll(UnderTwoFaults); }

}  // namespace
}  // namespace gradwire::sim
