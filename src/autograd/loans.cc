#include "autograd/loans.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <mutex>
#include <unordered_set>
#include <utility>

#include "gradwire/error.h"

namespace gradwire::autograd {
namespace {

// Of all passes of this process: a leaf has one `.grad`.
std::mutex lent_mutex;
std::unordered_set<c10::TensorImpl*>& LentAnywhere() {
  static auto& lent = *new std::unordered_set<c10::TensorImpl*>();
  return lent;
}

bool SharesMemory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.storage().use_count() > 1;
}

// With a sink the reducer has searched the module's graph when its forward ended. It sees nothing beyond a receive
// node, and takes what lies there for unused.
void CheckWhole(const Reduced& reduced, const std::vector<NodePtr>& entries) {
  std::unordered_set<c10::TensorImpl*> leaves;
  for (const at::Tensor& leaf : reduced.leaves) leaves.insert(leaf.unsafeGetTensorImpl());
  for (const NodePtr& entry : entries) {
    bool finds_sink = false, finds_leaf = false;
    std::unordered_set<Node*> seen{entry.get()};
    std::vector<Node*> left{entry.get()};
    while (!left.empty()) {
      Node* const node = left.back();
      left.pop_back();
      finds_sink = finds_sink || node == reduced.sink;
      const auto* const leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
      finds_leaf = finds_leaf || (leaf && leaves.contains(leaf->variable.unsafeGetTensorImpl()));
      for (const auto& edge : node->next_edges()) {
        if (edge.is_valid() && seen.insert(edge.function.get()).second) left.push_back(edge.function.get());
      }
    }
    if (!finds_leaf || finds_sink) continue;
    throw Error(ErrorCode::kInvalid,
                "a DistributedDataParallel module that calls other workers in its forward cannot have "
                "find_unused_parameters or static_graph: it does not find the parameters before such a call");
  }
}

}  // namespace

bool Loans::IsHooked(const Node& node) {
  auto& hooks = const_cast<Node&>(node).post_hooks();
  if (hooks.empty() || !dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) return false;
  for (const auto& hook : hooks) {
    if (dynamic_cast<const torch::autograd::utils::LambdaPostHook*>(hook.get())) return true;
  }
  return false;
}

void Loans::Begin(const Graph& graph) {
  if (graph.hooked.empty()) return;
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& leaf : graph.hooked) Lend(leaf);
  if (!options_.find_reduced) return;
  for (const Reduced& reduced : options_.find_reduced(graph.python_nodes, graph.hooked)) {
    if (reduced.sink) CheckWhole(reduced, graph.entries);
    for (const at::Tensor& leaf : reduced.leaves) Lend(leaf);
  }
}

void Loans::Lend(const at::Tensor& leaf) {
  if (Holds(leaf)) return;
  {
    const std::lock_guard lock(lent_mutex);
    if (!LentAnywhere().insert(leaf.unsafeGetTensorImpl()).second) {
      throw Error(ErrorCode::kInvalid,
                  "another backward pass reduces the gradients of this DistributedDataParallel module just now: one "
                  "at a time");
    }
  }
  Lent& lent = lent_[leaf.unsafeGetTensorImpl()];
  lent.leaf = leaf;
  lent.before = leaf.grad();
  if (SharesMemory(lent.before)) lent.copy = lent.before.clone();
  // Not the context's own: the pass may fail.
  const at::Tensor so_far = options_.so_far(leaf);
  leaf.mutable_grad() = so_far.defined() ? so_far.clone() : at::Tensor();
}

std::vector<LeafGradient> Loans::TakeBack() {
  std::vector<LeafGradient> result;
  for (auto& [impl, lent] : lent_) {
    at::Tensor gradient = lent.leaf.grad();
    if (!gradient.defined()) continue;
    // The reducer's own memory, which its next pass writes to.
    if (SharesMemory(gradient)) gradient = gradient.clone();
    result.push_back({lent.leaf, std::move(gradient), true});
  }
  GiveBack();
  return result;
}

void Loans::GiveBack() {
  if (std::exchange(is_given_back_, true)) return;
  const c10::AutoGradMode no_grad(false);
  for (auto& [impl, lent] : lent_) {
    if (lent.copy.defined()) lent.before.copy_(lent.copy);  // the reducer has written to it
    lent.after = std::exchange(lent.leaf.mutable_grad(), std::move(lent.before));
  }
}

void Loans::End() {
  GiveBack();
  const std::lock_guard lock(lent_mutex);
  for (const auto& [impl, lent] : lent_) LentAnywhere().erase(impl);
}

}  // namespace gradwire::autograd
