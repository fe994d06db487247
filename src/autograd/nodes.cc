#include "autograd/nodes.h"

#include <torch/csrc/autograd/functions/utils.h>

#include "gradwire/error.h"

namespace gradwire::autograd {
namespace {

// Where the receive node that runs on this thread puts its gradients. libtorch checks a node's results against its next
// edges, which a receive node has none of.
thread_local TensorList* collected = nullptr;

}  // namespace

SendBackward::SendBackward(const TensorList& sent) {
  set_next_edges(torch::autograd::collect_next_edges(sent));
  for (const at::Tensor& tensor : sent) add_input_metadata(tensor);
}

RecvPtr RecvBackward::Attach(const TensorList& received, WorkerId peer, MessageId message) {
  auto node = c10::make_intrusive<RecvBackward>(peer, message);
  for (const at::Tensor& tensor : received) {
    tensor.set_requires_grad(false);  // it does by its history now, no longer as a leaf
    torch::autograd::set_history(tensor, node);
  }
  return node;
}

TensorList RecvBackward::Collect(TensorList&& gradients) {
  struct Slot {
    TensorList* const outer = collected;
    TensorList mine;
    Slot() { collected = &mine; }
    ~Slot() { collected = outer; }
  } slot;
  (*this)(std::move(gradients));
  return std::move(slot.mine);
}

TensorList RecvBackward::apply(TensorList&& gradients) {
  if (!collected) {
    throw Error(ErrorCode::kInvalid,
                "the gradient of a tensor that came from worker " + std::to_string(peer_.rank) +
                    " belongs to a distributed autograd context: use its backward, not the local one");
  }
  *collected = std::move(gradients);
  collected = nullptr;  // what a hook runs meanwhile is no part of this
  return {};
}

TensorList RequiringGrad(const TensorList& tensors) {
  TensorList result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) result.push_back(tensor);
  }
  return result;
}

}  // namespace gradwire::autograd
