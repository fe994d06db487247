// What runs of a Job go through: by seed.
#pragma once

#include <cstdint>

#include "sim/job.h"

namespace gradwire::sim {

JobOptions UnderTwoFaults(uint64_t seed);  // of any kind
JobOptions WithoutLoss(uint64_t seed);     // no fault that any worker is lost by

// The threads of a run hand each other the turn, which is much cheaper on one processor.
void StayOnThisProcessor();

}  // namespace gradwire::sim
