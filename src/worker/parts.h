// WorkerParts: what a Worker stands on. The real ones are made by default; simulation and tests pass their own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "transport/transport.h"

namespace gradwire {

struct WorkerParts {
  std::shared_ptr<Clock> clock;
  std::shared_ptr<Executor> executor;
  // In order of preference. One must be able to reach the worker itself: calls to oneself use it too.
  std::vector<std::shared_ptr<transport::Transport>> transports;
  uint32_t incarnation = 0;  // of the worker's id, for simulation; 0: a random one
};

}  // namespace gradwire
