// Executor: where everything runs that may wait, take a lock of a user, or run a user's code (guarantee O2).
#pragma once

#include <cstdint>
#include <optional>

#include "base/event.h"
#include "base/task.h"

namespace gradwire {

class Executor {
 public:
  virtual ~Executor() = default;

  // Both queue `task`; they never run it inside the call and never block. Any thread.
  // The library's own line: completions, credit, control messages, values that are freed. Handlers cannot fill it.
  virtual void Post(Task task) = 0;
  // The line of a peer's handlers, `peer` as WorkerId::packed() gives it. Peers take turns (C4).
  virtual void PostHandler(uint64_t peer, Task task) = 0;

  // Waits for `event`; false when `limit` has passed first. Not under a role. In a pool thread another one runs in its
  // place meanwhile (C3); in simulation other tasks run inside this call, and a wait that nothing can end is an Error.
  virtual bool Await(Event& event, std::optional<Duration> limit = std::nullopt) = 0;

  // Whether this thread runs a task of a pool. Such a thread is never made to wait for what others could do later.
  virtual bool InTask() const = 0;

  // Whether this thread is one of its own, which the end of the executor waits for.
  virtual bool OwnsThisThread() const = 0;
};

}  // namespace gradwire
