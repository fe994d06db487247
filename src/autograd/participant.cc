#include "autograd/participant.h"

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace gradwire::autograd {
namespace {

// What `body` throws. For arithmetic that fails for want of memory.
template <class Body>
std::optional<Failure> FailureOfAdding(Body body) {
  try {
    body();
    return std::nullopt;
  } catch (const std::exception& error) {
    return Failure{.code = ErrorCode::kInternal, .text = std::string("adding up gradients failed: ") + error.what()};
  }
}

// Passes of several contexts, and of several workers in this process, may come to one leaf at the same time. A hook may
// run a pass of its own.
std::recursive_mutex& HookMutexOf(const at::Tensor& leaf) {
  static auto& mutexes = *new std::array<std::recursive_mutex, 64>();
  return mutexes[std::hash<const void*>()(leaf.unsafeGetTensorImpl()) / 64 % mutexes.size()];
}

}  // namespace

Participant::Participant(Setup setup) : setup_(std::move(setup)), pass_(setup_.pass) {}

NodePtr Participant::FindEntry(MessageId message) const {
  if (setup_.root && message == RootsOf(setup_.self)) return setup_.root;
  return setup_.context->FindSend(message);
}

PassTable::Walk Participant::Walk(std::vector<Marking> entries) {
  PassTable::Walk walk;
  try {
    while (!entries.empty()) {
      std::vector<Pass::Entry> nodes;
      for (Marking& entry : entries) {
        NodePtr node = FindEntry(entry.message);
        if (!node) {
          throw Error(ErrorCode::kInvalid, "a message that is not in autograd context " +
                                               std::to_string(setup_.key.context) + " was to take part in a pass");
        }
        walk.counted.push_back(entry.message);
        nodes.push_back({std::move(node), std::move(entry.tensors)});
      }
      entries.clear();
      for (Pass::Reached& reached : pass_.Reach(nodes)) {
        Marking marking{reached.node->message(), std::move(reached.tensors)};
        const WorkerId peer = reached.node->peer();
        (peer == setup_.self ? entries : walk.reached[peer]).push_back(std::move(marking));
      }
    }
  } catch (const Error& error) {
    walk.failure = std::make_shared<const Failure>(error.failure());
  } catch (const std::exception& error) {
    walk.failure = std::make_shared<const Failure>(Failure{.code = ErrorCode::kInternal, .text = error.what()});
  }
  return walk;
}

std::optional<Failure> Participant::Run(MessageId message, TensorList gradients) {
  const NodePtr entry = FindEntry(message);
  if (!entry) return Failure{.code = ErrorCode::kInvalid, .text = "the context was released during the pass"};
  const CurrentContext::Scope scope(setup_.current(), setup_.context);
  return pass_.Arrive(entry, std::move(gradients));
}

std::optional<Failure> Participant::AddUp() {
  return FailureOfAdding([this] { gradients_ = pass_.Finish(); });
}

std::optional<Failure> Participant::Join() {
  std::vector<at::Tensor> hooked;
  for (const LeafGradient& entry : gradients_) {
    if (HasPostAccumulateHooks(entry.leaf)) hooked.push_back(entry.leaf);
  }
  auto failure = FailureOfAdding([this] { setup_.context->Join(std::move(gradients_)); });
  for (const at::Tensor& leaf : hooked) {
    if (!failure) failure = RunHooks(leaf);
  }
  return failure;
}

// Hooks read `.grad`, and may replace it or set it to nothing once they have used it: for their time the context's
// gradient stands there.
std::optional<Failure> Participant::RunHooks(const at::Tensor& leaf) const {
  const std::lock_guard lock(HookMutexOf(leaf));
  const CurrentContext::Scope scope(setup_.current(), setup_.context);
  const at::Tensor own = leaf.grad();
  leaf.mutable_grad() = setup_.context->gradient(leaf);
  auto failure = RunPostAccumulateHooks(leaf, setup_.pass.describe);
  setup_.context->SetGradient(leaf, leaf.grad());
  leaf.mutable_grad() = own;
  return failure;
}

}  // namespace gradwire::autograd
