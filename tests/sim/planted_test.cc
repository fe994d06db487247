// Rules of the protocols' tables are switched off, one at a time, in the whole library: a simulation of jobs under
// faults must notice each within 500 runs. Only in builds with GRADWIRE_PLANTED (`make test-planted`).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "autograd/pass_table.h"
#include "rpc/outbox.h"
#include "rref/owner_table.h"
#include "sim/job.h"
#include "sim/job_faults.h"

namespace gradwire::sim {
namespace {

constexpr int kSeeds = 500;

struct Mistake {
  const char* name;
  bool* rule;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class Planted : public testing::TestWithParam<Mistake> {};

// In a process of its own: who makes mistakes may crash, which tells as much.
TEST_P(Planted, IsFound) {
  const pid_t child = fork();
  if (child == 0) {
    *GetParam().rule = false;
    StayOnThisProcessor();
    for (int seed = 0; seed < kSeeds; ++seed) {
      auto job = std::make_unique<Job>(UnderTwoFaults(static_cast<uint64_t>(seed)));
      const JobReport report = job->Run();
      if (report.violations.empty()) continue;
      std::cout << "found by run " << seed << ": " << report.violations.front() << std::endl;
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "no run of " << kSeeds << " has noticed";
  if (WIFSIGNALED(status)) std::cout << "found by signal " << WTERMSIG(status) << std::endl;
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, Planted,
    testing::Values(Mistake{"FreesWhatWasNotAcknowledged", &rpc::OutboxRules::kFreeWhenAcknowledged},
                    Mistake{"ForgetsBulkWithItsHeader", &rpc::OutboxRules::kBulkOutlivesHeader},
                    Mistake{"LosesWhatWasOnItsWay", &rpc::OutboxRules::kGoOnFromTaken},
                    Mistake{"ForgetsEarlyDrops", &rref::OwnerRules::kRememberEarlyDrops},
                    Mistake{"FetchesWhatIsNotCreated", &rref::OwnerRules::kFetchWaitsForCreation},
                    Mistake{"KeepsForksOfTheLost", &rref::OwnerRules::kForgetForksOfTheLost},
                    Mistake{"AwaitsNotAllAnswers", &rref::OwnerRules::kAwaitAllAnswers},
                    Mistake{"RegistersForksOfTheLost", &rref::OwnerRules::kRefuseForksForTheLost},
                    Mistake{"CommitsOneByOne", &autograd::PassRules::kCommitWhenAllAreDone},
                    Mistake{"AnswersMarksAtOnce", &autograd::PassRules::kAnswerWhenAllBelowHave},
                    Mistake{"OutlivesTheStarter", &autograd::PassRules::kEndWithTheStarter}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradwire::sim
