// Calls: what autograd needs of the call layer. An interface, so that tests can lose and delay messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/ids.h"
#include "gradwire/call.h"
#include "rpc/interceptor.h"

namespace gradwire::rpc {
class Rpc;
}

namespace gradwire::autograd {

class Calls {
 public:
  virtual ~Calls() = default;

  virtual const rpc::Peer& self() const = 0;
  virtual Executor& executor() = 0;

  // `done` runs once, on the executor: with an answer, or when the peer is lost or this worker stops. No timeout. May
  // be called under a role. Calls to one peer arrive in the order in which they were sent (O1).
  virtual void Send(WorkerId to, const std::string& function, Payload args, Completion done) = 0;

  // The worker that bears this rank now, as far as is known here.
  virtual std::optional<WorkerId> Ranked(uint32_t rank) const = 0;

  // Without an answer.
  virtual void Notify(WorkerId to, const std::string& function, Payload args) = 0;
};

// Over the real call layer.
std::shared_ptr<Calls> CallsOver(std::shared_ptr<rpc::Rpc> rpc);

}  // namespace gradwire::autograd
