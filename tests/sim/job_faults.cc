#include "sim/job_faults.h"

#include <sched.h>

#include <random>

namespace gradwire::sim {

void StayOnThisProcessor() {
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  sched_setaffinity(0, sizeof here, &here);
}

JobOptions UnderTwoFaults(uint64_t seed) {
  std::mt19937_64 random(seed);
  JobOptions options{.seed = seed, .workers = 3 + random() % 2};
  for (int i = 0; i < 2; ++i) options.faults.push_back(static_cast<JobFault>(random() % 5));
  return options;
}

JobOptions WithoutLoss(uint64_t seed) {
  JobOptions options = UnderTwoFaults(seed);
  options.may_last = false;
  for (JobFault& fault : options.faults) {
    if (fault == JobFault::kDeath) fault = JobFault::kLostSuffix;
  }
  return options;
}

}  // namespace gradwire::sim
