// The starter's side of a pass: mark, run, then commit on all its workers or abort on all (docs/autograd.md, "A pass").
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "autograd/messages.h"
#include "autograd/protocol.h"

namespace gradwire::autograd {
namespace {

void CheckRoots(const TensorList& roots) {
  if (roots.empty()) {
    throw Error(ErrorCode::kInvalid, "No tensors provided for gradient computation: backward needs at least one root");
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    const at::Tensor& root = roots[i];
    const std::string name = "root " + std::to_string(i) + " of backward";
    if (!root.defined() || !root.requires_grad()) {
      throw Error(ErrorCode::kInvalid, "requires_grad not set on " + name);
    }
    if (root.numel() != 1) {
      throw Error(ErrorCode::kInvalid, name + " is not a scalar, all roots need to be scalar: it has " +
                                           std::to_string(root.numel()) + " elements");
    }
    if (!root.grad_fn()) {
      throw Error(ErrorCode::kInvalid, name + " does not have a valid gradient function: it is a leaf");
    }
  }
}

// Waits for several answers, or for the first failure.
class Answers {
 public:
  explicit Answers(size_t count) : left_(count) {
    if (count == 0) event_.Set();
  }
  void Add(const std::optional<Failure>& failure) {
    {
      const std::lock_guard lock(mutex_);
      if (failure && !failure_) failure_ = failure;
      if (--left_ > 0 && !failure_) return;
      if (std::exchange(ended_, true)) return;
    }
    event_.Set();
  }
  std::optional<Failure> Await(Executor& executor) {
    executor.Await(event_);
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  Event event_;
  std::mutex mutex_;
  size_t left_;
  bool ended_ = false;
  std::optional<Failure> failure_;
};

std::optional<Failure> FailureOf(const Outcome& outcome) {
  return outcome.ok() ? std::nullopt : std::optional(outcome.failure());
}

}  // namespace

void Protocol::Backward(ContextId id, const TensorList& roots, bool retain_graph) {
  const std::shared_ptr<ContextState> context = interceptor_->table().Find(id);
  if (!context) throw Error(UnknownContext(id, interceptor_->self().name));
  CheckRoots(roots);
  if (auto poison = context->poison()) throw Error(std::move(*poison));
  const NodePtr root = c10::make_intrusive<SendBackward>(roots);
  const auto participant = Begin(id, {calls_->self().id, next_pass_.fetch_add(1)}, retain_graph);
  std::optional<Failure> failure;
  std::set<WorkerId> others;
  try {
    failure = RunPass(participant, root, roots, others);
  } catch (const std::exception& error) {
    failure = Failure{.code = ErrorCode::kInternal, .text = error.what()};
  }
  if (failure) AbortAll(participant, others);
  Forget(participant);
  if (!failure) return;
  if (failure->code == ErrorCode::kDisconnected) context->Poison(*failure);
  throw Error(*failure);
}

std::optional<Failure> Protocol::RunPass(const std::shared_ptr<Participant>& participant, const NodePtr& root,
                                         const TensorList& roots, std::set<WorkerId>& others) {
  struct Marked : Answers {
    Marked() : Answers(1) {}
    std::set<WorkerId> others;
  };
  auto marked = std::make_shared<Marked>();
  participant->BeginWalk(calls_->self().id.rank);
  participant->Walk({root}, [marked](const std::optional<Failure>& failure, const std::set<WorkerId>& reached) {
    marked->others = reached;
    marked->Add(failure);
  });
  if (auto failure = marked->Await(calls_->executor())) return failure;
  others = std::move(marked->others);
  others.erase(calls_->self().id);

  auto done = std::make_shared<Answers>(1 + others.size());
  participant->WhenDone([done](const std::optional<Failure>& failure) { done->Add(failure); });
  const Payload args = EncodeValue(ArgsOf(participant->context()->id(), participant->id()));
  for (const WorkerId& other : others) {
    calls_->Send(other, kRun, args, [done, participant](const Outcome& outcome) {
      // This worker's own nodes stop as well.
      if (!outcome.ok()) participant->Fail(outcome.failure());
      done->Add(FailureOf(outcome));
    });
  }
  TensorList ones;
  {
    const c10::AutoGradMode no_grad(false);
    for (const at::Tensor& tensor : roots) ones.push_back(at::ones_like(tensor));
  }
  participant->Arrive(root, std::move(ones));
  if (auto failure = done->Await(calls_->executor())) return failure;
  auto failure = CommitAll(participant, others);
  // Some may have added their gradients: no later pass may add to those.
  if (failure) participant->context()->Poison(*failure);
  return failure;
}

std::optional<Failure> Protocol::CommitAll(const std::shared_ptr<Participant>& participant,
                                           const std::set<WorkerId>& others) {
  auto committed = std::make_shared<Answers>(others.size());
  const Payload args = EncodeValue(ArgsOf(participant->context()->id(), participant->id()));
  for (const WorkerId& other : others) {
    calls_->Send(other, kCommit, args, [committed](const Outcome& outcome) { committed->Add(FailureOf(outcome)); });
  }
  // A worker that goes just now takes its gradients with it: nothing joins here either.
  if (auto failure = committed->Await(calls_->executor())) return failure;
  return participant->Commit();
}

void Protocol::AbortAll(const std::shared_ptr<Participant>& participant, const std::set<WorkerId>& others) {
  auto aborted = std::make_shared<Answers>(1 + others.size());
  participant->Abort([aborted] { aborted->Add(std::nullopt); });
  // Those that have been marked pass it on. Directly as well, since one that has committed already does not.
  const Payload args = EncodeValue(ArgsOf(participant->context()->id(), participant->id()));
  for (const WorkerId& other : others) {
    calls_->Send(other, kAbort, args, [aborted](const Outcome&) { aborted->Add(std::nullopt); });
  }
  aborted->Await(calls_->executor());
}

}  // namespace gradwire::autograd
