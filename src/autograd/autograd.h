// Autograd: distributed autograd of one worker. The facade of this layer.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "gradwire/autograd.h"
#include "gradwire/error.h"
#include "gradwire/function.h"
#include "gradwire/surroundings.h"
#include "rpc/interceptor.h"

namespace gradwire::rpc {
class Rpc;
}
namespace torch::autograd {
struct Node;
}

namespace gradwire::autograd {

class Protocol;

// Thread-safe.
class GRADWIRE_API Autograd {
 public:
  // Registers the control messages of autograd in `functions`, a table of this worker alone.
  Autograd(const rpc::Peer& self, Functions& functions);
  ~Autograd();
  Autograd(const Autograd&) = delete;

  // For Rpc::Options, then Attach() before the first call.
  std::shared_ptr<rpc::Interceptor> interceptor() const;
  void Attach(std::shared_ptr<rpc::Rpc> rpc);
  // Each peer whose session has ended, and why: passes that it took part in end with that (A3). Then, when all that it
  // sent has been handled: contexts that it would have released are released (A7). Any thread, also under a role.
  void OnPeerEnded(const rpc::Peer& peer, const Failure& why);
  void OnPeerDrained(const rpc::Peer& peer);
  // This worker stops: every backward under way ends with `why`, wherever it waits, and so does each later one (C1).
  // Before the calls stop. Any thread.
  void Close(const Failure& why);

  // A new context, current nowhere yet.
  ContextId NewContext();
  bool Knows(ContextId context) const;
  // On this worker and on all that its calls reached (A7). False when it is unknown. Waits for nothing.
  bool Release(ContextId context);

  // The context that is current on this thread, or -1.
  ContextId current() const;
  // The surroundings of this thread with this context current in them, -1: none. Throws Error(kInvalid) when it is
  // unknown.
  Surroundings Inside(ContextId context) const;

  // See gradwire/autograd.h.
  void Backward(ContextId context, const std::vector<at::Tensor>& roots, bool retain_graph = false);
  std::vector<std::pair<at::Tensor, at::Tensor>> Gradients(ContextId context) const;

  // How to describe exceptions of nodes and hooks that only Python understands: called where one was caught, without
  // locks; nothing for those that it does not know.
  void set_describe(std::function<std::optional<Failure>(const std::exception_ptr&)> describe);

  // See gradwire/autograd.h.
  void set_find_reduced(FindReduced find);

  struct Counts {
    size_t contexts = 0;
    size_t tombstones = 0;  // of released contexts in which handlers still run
    size_t passes = 0;
  };
  Counts counts() const;

  // What a context has recorded here. For tests and debugging.
  struct Record {
    std::vector<std::pair<MessageId, torch::autograd::Node*>> sends, recvs;  // in the order of their creation
    std::set<WorkerId> peers;                                                // whom calls with it went to
    std::shared_ptr<void> keep;                                              // the nodes live as long as this
  };
  Record Inspect(ContextId context) const;  // throws Error(kInvalid) when it is unknown
  ContextId max_id() const;                 // the largest that this worker can give

 private:
  const std::shared_ptr<Protocol> protocol_;
};

}  // namespace gradwire::autograd
