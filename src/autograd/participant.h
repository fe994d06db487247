// Participant: this worker's graph in one backward pass. What the table of passes decides (pass_table.h) is done here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/context.h"
#include "autograd/current_context.h"
#include "autograd/pass.h"
#include "autograd/pass_table.h"

namespace gradwire::autograd {

// Thread-safe, in the order that the table gives: walks, then arrivals, then AddUp() and Join() once each.
class Participant {
 public:
  struct Setup {
    PassKey key;
    WorkerId self;
    std::shared_ptr<ContextState> context;
    Pass::Options pass;
    std::function<const CurrentContext&()> current;
    SendPtr root;  // over the roots of the starter; null elsewhere
  };
  explicit Participant(Setup setup);

  const PassKey& key() const { return setup_.key; }
  const std::shared_ptr<ContextState>& context() const { return setup_.context; }

  // The name of the starter's roots among the messages.
  static MessageId RootsOf(WorkerId self) { return {self, UINT64_MAX}; }

  // Counts what `entries` lead to. Receive nodes that lead back to this worker are followed. On a pool or user thread.
  PassTable::Walk Walk(std::vector<Marking> entries);
  // Runs what the message leads to. On a pool or user thread, for as long as its nodes take.
  std::optional<Failure> Run(MessageId message, TensorList gradients);
  // Adds up the gradients of the pass, then adds them to the context and runs the post-accumulate hooks of the leaves.
  std::optional<Failure> AddUp();
  std::optional<Failure> Join();
  // No node starts after this. Any thread.
  void Stop() { pass_.Stop(); }

 private:
  NodePtr FindEntry(MessageId message) const;
  std::optional<Failure> RunHooks(const at::Tensor& leaf) const;

  const Setup setup_;
  Pass pass_;
  std::vector<LeafGradient> gradients_;  // between AddUp() and Join()
};

}  // namespace gradwire::autograd
