// AtStep: something happens at a certain step of a simulation.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

#include "sim/sim_scheduler.h"

namespace gradwire::sim {

// Runs `task` once the scheduler has made `step` steps. It looks at each step, and lets time pass when nothing else can
// run: the others may wait for it.
inline void AtStep(SimScheduler& scheduler, size_t step, std::function<void()> task) {
  scheduler.Post([&scheduler, step, task = std::move(task)] {
    if (scheduler.steps() >= step) return task();
    if (!scheduler.alone()) return AtStep(scheduler, step, task);
    scheduler.CallAt(scheduler.Now() + std::chrono::milliseconds(1),
                     [&scheduler, step, task] { AtStep(scheduler, step, task); });
  });
}

}  // namespace gradwire::sim
