// Loans: gradients of a context that stand in `.grad` while a pass runs, for who can only look there.
#pragma once

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/nodes.h"
#include "gradwire/autograd.h"

namespace gradwire::autograd {

// The gradient of a leaf that a pass gives.
struct LeafGradient {
  at::Tensor leaf;
  at::Tensor gradient;
  bool is_whole = false;  // with what the context had before: it takes that one's place
};

// libtorch's reducer, behind DistributedDataParallel, sits in a post hook of each parameter, and reads and writes its
// `.grad` there and when the last one has come. So the context's gradient is put there for the time of the pass; what
// stood there comes back afterwards. Not thread-safe, but for Holds().
class Loans {
 public:
  struct Options {
    std::function<at::Tensor(const at::Tensor& leaf)> so_far;  // the context's gradient; undefined when it has none
    FindReduced find_reduced;  // may be empty: then leaves that no node leads to are not known
  };
  explicit Loans(Options options) : options_(std::move(options)) {}
  ~Loans() { End(); }
  Loans(const Loans&) = delete;

  // Whether a reducer waits for this node.
  static bool IsHooked(const Node& node);

  // Of the graph of a pass.
  struct Graph {
    TensorList hooked;                // leaves that a reducer waits for
    std::vector<Node*> python_nodes;  // written in Python
    std::vector<NodePtr> entries;     // where gradients come in
  };
  // Lends what its reducers look at. Throws Error(kInvalid) for a leaf that another pass has lent, and for a graph that
  // cannot be reduced.
  void Begin(const Graph& graph);
  // Whether it is lent. Any thread, between Begin() and End().
  bool Holds(const at::Tensor& leaf) const { return lent_.contains(leaf.unsafeGetTensorImpl()); }
  // What stands there now, for the context; `.grad` is as it was before.
  std::vector<LeafGradient> TakeBack();
  // The end of the pass, good or bad: others may lend them.
  void End();

 private:
  struct Lent {
    at::Tensor leaf;
    at::Tensor before;
    at::Tensor copy;   // of `before`, where its memory is shared with the reducer, which writes there
    at::Tensor after;  // kept: where it is given back it must not be destroyed
  };
  void Lend(const at::Tensor& leaf);
  void GiveBack();

  const Options options_;
  std::unordered_map<c10::TensorImpl*, Lent> lent_;
  bool is_given_back_ = false;
};

}  // namespace gradwire::autograd
