// Distributed autograd: gradients across calls (docs/autograd.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gradwire/export.h"
#include "gradwire/surroundings.h"

namespace torch::autograd {
struct Node;
}

namespace gradwire {

class Worker;

namespace autograd {

// A context for the life of this object, current on the thread that made it: calls made meanwhile record their tensors.
// Other threads enter it by a Surroundings::Scope of inside(worker, id). Destroy it on the same thread; that releases
// the context on every worker that it reached (A7).
class GRADWIRE_API Context {
 public:
  explicit Context(Worker& worker);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int64_t id() const { return id_; }

 private:
  Worker& worker_;
  int64_t id_;
  Surroundings::Scope scope_;
};

// What this thread runs inside of, with another context current in it, -1: none. Error(kInvalid) when it is unknown.
GRADWIRE_API Surroundings inside(Worker& worker, int64_t context_id);

// Computes the gradients of the sum of `roots` (scalars that require grad and are no leaves) with respect to all leaves
// on all workers that take part, into the context. Blocks. Throws Error: kInvalid for bad roots or an unknown context,
// kRemote when a node failed on any worker, kDisconnected or kUnreachable when one was lost, or when this worker ends
// meanwhile. A failed pass adds no gradient (A3).
// Without `retain_graph` the graph is freed and a second pass over it fails.
GRADWIRE_API void backward(Worker& worker, int64_t context_id, const std::vector<at::Tensor>& roots,
                           bool retain_graph = false);

// (leaf, gradient) for each leaf of this process that has one. Throws Error(kInvalid) for an unknown context.
GRADWIRE_API std::vector<std::pair<at::Tensor, at::Tensor>> get_gradients(Worker& worker, int64_t context_id);

// Leaves whose gradients libtorch's reducer (DistributedDataParallel) brings together, those among them too that a pass
// does not reach. `sink`: the node that the module has put behind its outputs when it has searched its own graph for
// parameters that are not used; null when it has not.
struct Reduced {
  torch::autograd::Node* sink = nullptr;
  std::vector<at::Tensor> leaves;
};
// Finds them, given those nodes of a pass that are written in Python and the leaves that a reducer waits for. On any
// thread, without locks.
using FindReduced = std::function<std::vector<Reduced>(const std::vector<torch::autograd::Node*>& python_nodes,
                                                       const std::vector<at::Tensor>& hooked)>;
// For a language that knows such modules. Before the first pass.
GRADWIRE_API void set_find_reduced(Worker& worker, FindReduced find);

// The context that is current on this thread, or -1.
GRADWIRE_API int64_t current_context(Worker& worker);

// ---- Contexts without a scope, and what they hold: for programs that look into them, and for compat. ----
GRADWIRE_API int64_t new_context(Worker& worker);     // current nowhere
GRADWIRE_API int64_t max_context_id(Worker& worker);  // the largest that this worker can give
// Whether it is here and not released.
GRADWIRE_API bool knows_context(Worker& worker, int64_t context_id);
// On all workers that it reached (A7). False when it is unknown.
GRADWIRE_API bool release_context(Worker& worker, int64_t context_id);

struct Recorded {
  std::vector<torch::autograd::Node*> sends, receives;  // in the order of their creation
  std::shared_ptr<void> keep;                           // they live as long as this
  std::vector<int64_t> peers;                           // ranks that calls of the context went to
};
GRADWIRE_API Recorded recorded(Worker& worker, int64_t context_id);  // Error(kInvalid) when it is unknown

}  // namespace autograd
}  // namespace gradwire
