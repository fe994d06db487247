#include "autograd/cut_history.h"

#include <memory>
#include <string>

#include "gradwire/error.h"

namespace gradwire::autograd {
namespace {

// Does nothing: its presence is the note.
struct CutHistory final : torch::autograd::FunctionPreHook {
  explicit CutHistory(WorkerId peer) : peer(peer) {}
  TensorList operator()(const TensorList& gradients) override { return gradients; }
  const WorkerId peer;
};

template <class Hooks>
const CutHistory* FindCut(const Hooks& hooks) {
  for (const auto& hook : hooks) {
    if (const auto* const cut = dynamic_cast<const CutHistory*>(hook.get())) return cut;
  }
  return nullptr;
}

}  // namespace

std::vector<uint32_t> WithHistory(const TensorList& tensors) {
  std::vector<uint32_t> result;
  uint32_t number = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    if (!tensor.is_leaf() || FindCut(torch::autograd::impl::hooks(tensor))) result.push_back(number);
    ++number;
  }
  return result;
}

void NoteCut(const TensorList& tensors, const std::vector<uint32_t>& numbers, WorkerId peer) {
  const TensorList received = RequiringGrad(tensors);
  for (const uint32_t number : numbers) {
    if (number >= received.size()) throw Error(ErrorCode::kInvalid, "a message names a tensor that it has not brought");
    torch::autograd::impl::add_hook(received[number], std::make_unique<CutHistory>(peer));
  }
}

void CheckHistory(Node& node) {
  const CutHistory* const cut = FindCut(node.tensor_pre_hooks());
  if (!cut) return;
  throw Error(ErrorCode::kInvalid,
              "backward comes to a tensor that worker " + std::to_string(cut->peer.rank) +
                  " has computed or passed on in a call outside of every autograd context, so its gradient cannot go "
                  "back there. A context belongs to the thread or task that entered it: let other threads make their "
                  "calls by contextvars.copy_context().run (in C++ inside of a Surroundings::Scope). Where no gradient "
                  "is wanted, make the call under torch.no_grad(). all_gather() is outside of every context");
}

}  // namespace gradwire::autograd
