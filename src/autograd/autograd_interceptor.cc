#include "autograd/autograd_interceptor.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "autograd/cut_history.h"
#include "autograd/extension.h"

namespace gradwire::autograd {
namespace {

constexpr size_t kSlot = static_cast<size_t>(rpc::StateSlot::kAutograd);

void AttachReceived(ContextState& context, const TensorList& tensors, const ContextExtension& extension,
                    WorkerId peer) {
  if (!extension.message) return;
  const TensorList received = RequiringGrad(tensors);
  if (received.size() != extension.tensor_count) {
    throw Error(ErrorCode::kInvalid, "a message announced " + std::to_string(extension.tensor_count) +
                                         " tensors that require grad and brought " + std::to_string(received.size()));
  }
  context.AddRecv(*extension.message, RecvBackward::Attach(received, peer, *extension.message));
}

}  // namespace

// Of a call that this worker made in a context, or without gradients in none; lives as long as the call is under way.
struct AutogradInterceptor::SentCall {
  std::weak_ptr<AutogradInterceptor> owner;
  std::shared_ptr<ContextState> context;
  WorkerId peer;
  bool no_grad = false;

  ~SentCall() {
    if (!context || !context->closed()) return;
    if (const auto self = owner.lock(); self && self->late_release_) self->late_release_(peer, context->id());
  }
};

// Of a call that this worker serves in a context, from its header step until its handler has let go of it.
struct AutogradInterceptor::EnteredCall {
  std::weak_ptr<AutogradInterceptor> owner;
  ContextExtension extension;
  std::shared_ptr<ContextState> context;  // null: released
  std::atomic<bool> attached{false};

  ~EnteredCall() {
    if (const auto self = owner.lock()) self->table_.Leave(extension.context);
  }
};

void AutogradInterceptor::RecordSend(ContextState& context, const TensorList& tensors, ContextExtension& extension) {
  const TensorList sent = RequiringGrad(tensors);
  if (sent.empty()) return;
  const MessageId message{self_.id, next_message_.fetch_add(1)};
  if (!context.AddSend(message, c10::make_intrusive<SendBackward>(sent))) return;
  extension.message = message;
  extension.tensor_count = static_cast<uint32_t>(sent.size());
}

void AutogradInterceptor::SayWhatIsCut(const TensorList& tensors, std::vector<wire::Extension>& extensions) const {
  ContextExtension extension{.context = static_cast<ContextId>(self_.id.packed()), .cut = WithHistory(tensors)};
  if (!extension.cut.empty()) extensions.push_back(Encode(extension));
}

void AutogradInterceptor::NoteWhatIsCut(const TensorList& tensors, std::vector<wire::Extension>& extensions) {
  if (extensions.empty()) return;
  const auto extension = FindContextExtension(extensions);
  if (!extension || extension->cut.empty()) return;
  std::erase_if(extensions, [](const auto& each) { return each.tag == ContextExtension::kTag; });  // once
  NoteCut(tensors, extension->cut, WorkerId::FromPacked(static_cast<uint64_t>(extension->context)));
}

void AutogradInterceptor::OnSend(rpc::OutgoingCall& call) {
  if (call.request.function.starts_with(kFunctionPrefix)) return;
  const std::shared_ptr<ContextState> context = current_.get();
  if (!context || !context->AddPeer(call.to.id)) {
    if (c10::GradMode::is_enabled()) {
      SayWhatIsCut(call.request.args.tensors, call.request.extensions);
    } else {
      static const auto& without = *new std::shared_ptr<SentCall>(new SentCall{{}, nullptr, {}, true});
      call.state[kSlot] = without;
    }
    return;
  }
  ContextExtension extension{.context = context->id(), .no_grad = !c10::GradMode::is_enabled()};
  if (!extension.no_grad) RecordSend(*context, call.request.args.tensors, extension);
  call.request.extensions.push_back(Encode(extension));
  call.state[kSlot] = std::shared_ptr<SentCall>(new SentCall{weak_from_this(), context, call.to.id, extension.no_grad});
}

void AutogradInterceptor::OnHeader(rpc::ServedCall& call) {
  const auto extension = FindContextExtension(call.request.extensions);
  if (!extension || !extension->cut.empty()) return;
  auto entered = std::make_shared<EnteredCall>();
  entered->context = table_.Enter(extension->context, call.from.id.rank);
  entered->extension = *extension;
  entered->owner = weak_from_this();
  call.state[kSlot] = std::move(entered);
}

std::shared_ptr<void> AutogradInterceptor::OnDispatch(rpc::ServedCall& call) {
  const auto entered = std::static_pointer_cast<EnteredCall>(call.state[kSlot]);
  if (!entered) NoteWhatIsCut(call.request.args.tensors, call.request.extensions);
  if (!entered || !entered->context || entered->context->closed()) return nullptr;
  // A handler that answers later enters again.
  if (!entered->attached.exchange(true)) {
    AttachReceived(*entered->context, call.request.args.tensors, entered->extension, call.from.id);
  }
  return std::make_shared<CurrentContext::Scope>(current_, entered->context);
}

void AutogradInterceptor::OnReply(rpc::ServedCall& call, wire::Reply& reply) {
  const auto entered = std::static_pointer_cast<EnteredCall>(call.state[kSlot]);
  if (!entered) return SayWhatIsCut(reply.value.tensors, reply.extensions);
  if (!entered->context || entered->extension.no_grad) return;
  ContextExtension extension{.context = entered->extension.context};
  RecordSend(*entered->context, reply.value.tensors, extension);
  if (extension.message) reply.extensions.push_back(Encode(extension));
}

void AutogradInterceptor::OnReplyReceived(wire::Reply& reply, CallState& state) {
  const auto sent = std::static_pointer_cast<SentCall>(state[kSlot]);
  if (!sent) return NoteWhatIsCut(reply.value.tensors, reply.extensions);
  if (sent->no_grad || sent->context->closed()) return;
  const auto extension = FindContextExtension(reply.extensions);
  if (!extension) return;
  AttachReceived(*sent->context, reply.value.tensors, *extension, sent->peer);
}

}  // namespace gradwire::autograd
