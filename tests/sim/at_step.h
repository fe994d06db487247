// AtStep: something happens at a certain step of a simulation.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "sim/sim_scheduler.h"

namespace gradwire::sim {

// Runs `task` once the scheduler has made `step` steps. It looks at each step, and lets time pass when nothing else can
// run meanwhile: the others may wait for it.
inline void AtStep(SimScheduler& scheduler, size_t step, std::function<void()> task,
                   size_t last_look = std::numeric_limits<size_t>::max() - 1) {
  scheduler.Post([&scheduler, step, task = std::move(task), last_look] {
    const size_t now = scheduler.steps();
    if (now >= step) return task();
    if (now != last_look + 1) return AtStep(scheduler, step, task, now);
    scheduler.CallAt(scheduler.Now() + std::chrono::milliseconds(1),
                     [&scheduler, step, task] { AtStep(scheduler, step, task); });
  });
}

}  // namespace gradwire::sim
