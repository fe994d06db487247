// The starter's side of a pass: mark, run, and the end that the table of passes gives (docs/autograd.md, "A pass").
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>

#include <numeric>
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

FailurePtr WhyAbandoned(const std::string& worker) {
  return std::make_shared<const Failure>(
      Failure{.code = ErrorCode::kCancelled, .text = "the wait for the backward pass was ended", .worker = worker});
}

}  // namespace

void Protocol::Backward(ContextId id, const TensorList& roots, bool retain_graph) {
  std::shared_ptr<ContextState> context = interceptor_->table().Find(id);
  if (!context) throw Error(UnknownContext(id, interceptor_->self().name));
  CheckRoots(roots);
  if (auto poison = context->poison()) throw Error(std::move(*poison));
  const PassKey pass{id, {calls_->self().id, next_pass_.fetch_add(1)}};
  const auto waiting = std::make_shared<Waiting>();
  const ParticipantPtr participant =
      MakeParticipant(pass, std::move(context), retain_graph, c10::make_intrusive<SendBackward>(roots));
  {
    const std::lock_guard lock(mutex_);
    if (const FailurePtr refusal = table_.Begin(pass, retain_graph)) throw Error(*refusal);
    participants_[pass] = participant;
    waiting_[pass] = waiting;
  }
  try {
    RunBackward(participant, *waiting, roots);
  } catch (...) {  // the wait was interrupted
    Step([&] { return table_.Abandon(pass, WhyAbandoned(calls_->self().name)); });
    throw;
  }
  if (waiting->failure) throw Error(*waiting->failure);
  FailurePtr failure;
  if (auto found = participant->Join()) failure = FailureHere(std::move(*found));
  Step([&] { return table_.Joined(pass, failure); });
  if (failure) throw Error(*failure);
}

void Protocol::RunBackward(const ParticipantPtr& participant, Waiting& waiting, const TensorList& roots) {
  const MessageId message = Participant::RootsOf(calls_->self().id);
  Marking all{message, std::vector<uint32_t>(roots.size())};
  std::iota(all.tensors.begin(), all.tensors.end(), 0);
  WalkFrom(participant, kNobody, {std::move(all)});
  calls_->executor().Await(waiting.fed);
  if (!waiting.ended.is_set()) {
    TensorList ones;
    {
      const c10::AutoGradMode no_grad(false);
      for (const at::Tensor& tensor : roots) ones.push_back(at::ones_like(tensor));
    }
    Arrive(participant, message, std::move(ones));
  }
  calls_->executor().Await(waiting.ended);
}

Protocol::ParticipantPtr Protocol::MakeParticipant(const PassKey& pass, std::shared_ptr<ContextState> context,
                                                   bool retain_graph, SendPtr root) {
  Pass::Options options{.retain_graph = retain_graph,
                        .leave =
                            [weak = weak_from_this(), pass](const RecvBackward& node, TensorList gradients) {
                              if (const auto self = weak.lock()) self->Leave(pass, node, std::move(gradients));
                            },
                        .carry_thread_state = root != nullptr};
  {
    const std::lock_guard lock(mutex_);
    options.describe = describe_;
    options.loans.find_reduced = find_reduced_;
  }
  options.loans.so_far = [context](const at::Tensor& leaf) { return context->gradient(leaf); };
  return std::make_shared<Participant>(
      Participant::Setup{.key = pass,
                         .self = calls_->self().id,
                         .context = std::move(context),
                         .pass = std::move(options),
                         .current = [interceptor = interceptor_]() -> const CurrentContext& {
                           return interceptor->current();
                         },
                         .root = std::move(root)});
}

FailurePtr Protocol::FailureHere(Failure failure) const {
  const rpc::Peer& self = calls_->self();
  failure.text = "Error on Node " + std::to_string(self.id.rank) + ": " + failure.text;
  failure.worker = self.name;
  return std::make_shared<const Failure>(std::move(failure));
}

void Protocol::WalkFrom(const ParticipantPtr& participant, Asker walk, std::vector<Marking> entries) {
  PassTable::Walk result = participant->Walk(std::move(entries));
  Step([&] { return table_.Walked(participant->key(), walk, std::move(result)); });
}

void Protocol::Arrive(const ParticipantPtr& participant, MessageId message, TensorList gradients) {
  const PassKey& pass = participant->key();
  bool runs = false;
  Step([&] {
    PassTable::Arrival arrival = table_.Arrived(pass, message);
    runs = arrival.runs;
    return std::move(arrival.actions);
  });
  if (!runs) return;
  FailurePtr failure;
  if (auto found = participant->Run(message, std::move(gradients))) failure = FailureHere(std::move(*found));
  Step([&] { return table_.Ran(pass, message, failure); });
  AddUpIfAllHasRun(participant);
}

void Protocol::AddUpIfAllHasRun(const ParticipantPtr& participant) {
  {
    const std::lock_guard lock(mutex_);
    if (!table_.TakeAddingUp(participant->key())) return;
  }
  FailurePtr failure;
  if (auto found = participant->AddUp()) failure = std::make_shared<const Failure>(std::move(*found));
  Step([&] { return table_.AddedUp(participant->key(), failure); });
}

// On the thread that runs the receive node.
void Protocol::Leave(const PassKey& pass, const RecvBackward& node, TensorList gradients) {
  const ParticipantPtr participant = Find(pass);
  if (!participant) return;
  const WorkerId peer = node.peer();
  if (peer == calls_->self().id) {
    calls_->executor().Post([self = shared_from_this(), participant, message = node.message(),
                             gradients = std::move(gradients)]() mutable {
      self->Arrive(participant, message, std::move(gradients));
    });
    return;
  }
  Payload args = EncodeValue(GradientsArgs{ArgsOf(pass), ArgsOf(node.message()), std::move(gradients)});
  {
    const std::lock_guard lock(mutex_);
    if (!table_.Left(pass)) return;
  }
  calls_->Send(peer, kGradients, std::move(args), [self = shared_from_this(), participant](const Outcome& outcome) {
    FailurePtr failure = outcome.ok() ? nullptr : std::make_shared<const Failure>(outcome.failure());
    self->Step([&] { return self->table_.GradientsAnswered(participant->key(), failure); });
    self->AddUpIfAllHasRun(participant);
  });
}

}  // namespace gradwire::autograd
