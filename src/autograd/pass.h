// Pass: one worker's share of one backward pass, run on libtorch's graph. Knows nothing of messages or other workers.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/loans.h"
#include "autograd/nodes.h"
#include "gradwire/error.h"

namespace gradwire::autograd {

// What a caught exception says of a node's failure, nothing when it is not of a kind that the function knows. Called on
// the thread that caught it. For exceptions that only Python understands.
using Describe = std::function<std::optional<Failure>(const std::exception_ptr&)>;

// libtorch's engine cannot take gradients that come in one after another, so nodes are run here, in a loop inside a
// driver node of the ordinary engine: thread-local state, final callbacks and reentrancy are then its own.
//
// First all Reach(), then Arrive() once for each entry, then Finish(). Entries are send nodes, to which no other node
// leads.
class Pass {
 public:
  struct Options {
    bool retain_graph = false;
    // Gradients that leave this worker. Any thread that runs nodes; may throw.
    std::function<void(const RecvBackward&, TensorList)> leave;
    Describe describe;
    Loans::Options loans;
    // Nodes see the thread-local state of the thread that makes this object (profilers, modes), on whichever they run.
    bool carry_thread_state = false;
  };
  explicit Pass(Options options);
  ~Pass();
  Pass(const Pass&) = delete;

  struct Entry {
    NodePtr node;
    std::vector<uint32_t> tensors;  // which of its own take part: the others lead nowhere
  };
  struct Reached {
    RecvPtr node;
    std::vector<uint32_t> tensors;  // which of its own were not reached before
  };
  // Adds what `entries` lead to, and counts its dependencies. An entry may come again with more tensors. Throws
  // Error(kInvalid) for a tensor that an entry does not have. Thread-safe.
  std::vector<Reached> Reach(const std::vector<Entry>& entries);

  // Runs `entry` and everything that becomes ready by it, on this thread: never under a role. Any number of threads. An
  // error stops the pass and is returned, as the nodes' own text.
  std::optional<Failure> Arrive(const NodePtr& entry, TensorList gradients);

  // No node starts after this. When none runs any more, nothing is lent any more. Any thread.
  void Stop();

  // The gradients of the leaves, when all has run.
  std::vector<LeafGradient> Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether the leaf has post-accumulate hooks, and runs them as local autograd does: once its gradient is complete. The
// failure of one that throws.
bool HasPostAccumulateHooks(const at::Tensor& leaf);
std::optional<Failure> RunPostAccumulateHooks(const at::Tensor& leaf, const Describe& describe);

// Adds `gradient` to `sum`, by the rules of local autograd: the first is taken as it is when nobody else holds it or
// its memory and its strides fit the leaf. `holders`: how many references to it the caller has.
void AddGradient(const at::Tensor& leaf, at::Tensor& sum, const at::Tensor& gradient, size_t holders);

}  // namespace gradwire::autograd
