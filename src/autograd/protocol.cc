#include "autograd/protocol.h"

#include <utility>

#include "autograd/messages.h"

namespace gradwire::autograd {
namespace {

Payload Nothing() {
  Payload payload;
  ValueWriter(payload).PutNone();
  return payload;
}

FailurePtr FailureOfAbort(const AbortArgs& args) {
  return std::make_shared<const Failure>(Failure{.code = static_cast<ErrorCode>(std::get<1>(args)),
                                                 .text = std::get<2>(args),
                                                 .worker = std::get<3>(args)});
}

}  // namespace

Failure UnknownContext(ContextId context, const std::string& worker) {
  return {.code = ErrorCode::kInvalid,
          .text = "Could not find autograd context with id: " + std::to_string(context) + " on worker '" + worker +
                  "': it never came here, or has been released"};
}

void Protocol::Register(Functions& functions) {
  const auto add = [&](const std::string& name, void (Protocol::*handler)(const std::shared_ptr<IncomingCall>&),
                       bool is_ordered) {
    functions.AddHandler(name,
                         [weak = weak_from_this(), handler](const std::shared_ptr<IncomingCall>& call) {
                           const auto self = weak.lock();
                           if (!self) throw Error(ErrorCode::kInvalid, "this worker has ended");
                           ((*self).*handler)(call);
                         },
                         {.is_ordered = is_ordered, .is_internal = true});
  };
  // In header order: an abort must find what the marks before it made.
  add(kMark, &Protocol::OnMark, true);
  add(kRun, &Protocol::OnRun, true);
  add(kAbort, &Protocol::OnAbort, true);
  add(kRelease, &Protocol::OnRelease, true);
  add(kAdopt, &Protocol::OnAdopt, true);
  add(kGradients, &Protocol::OnGradients, false);
  add(kCommit, &Protocol::OnCommit, false);
}

void Protocol::Attach(std::shared_ptr<Calls> calls) {
  calls_ = std::move(calls);
  interceptor_->set_late_release([weak = std::weak_ptr<Calls>(calls_)](WorkerId peer, ContextId context) {
    if (const auto calls = weak.lock()) calls->Notify(peer, kRelease, EncodeValue<int64_t>(context));
  });
}

void Protocol::set_describe(Describe describe) {
  const std::lock_guard lock(mutex_);
  describe_ = std::move(describe);
}

void Protocol::set_find_reduced(FindReduced find) {
  const std::lock_guard lock(mutex_);
  find_reduced_ = std::move(find);
}

Protocol::ParticipantPtr Protocol::Find(const PassKey& pass) const {
  const std::lock_guard lock(mutex_);
  const auto at = participants_.find(pass);
  return at == participants_.end() ? nullptr : at->second;
}

Asker Protocol::NewAsker(const std::shared_ptr<IncomingCall>& call) {
  const std::lock_guard lock(mutex_);
  askers_[++last_asker_] = call;
  return last_asker_;
}

size_t Protocol::passes() const {
  const std::lock_guard lock(mutex_);
  return table_.size();
}

void Protocol::OnMark(const std::shared_ptr<IncomingCall>& call) {
  const auto [args, retain_graph, messages] = DecodeValue<MarkArgs>(call->args());
  const PassKey pass = PassOf(args);
  std::shared_ptr<ContextState> context = interceptor_->table().Find(pass.context);
  if (!context) throw Error(UnknownContext(pass.context, interceptor_->self().name));
  ParticipantPtr participant = Find(pass);
  if (!participant) participant = MakeParticipant(pass, std::move(context), retain_graph, nullptr);
  const Asker asker = NewAsker(call);
  bool walks = false;
  Step([&, retain_graph = retain_graph] {
    PassTable::Admission admission =
        table_.Marked(pass, retain_graph, static_cast<uint32_t>(call->caller().id), asker);
    walks = admission.walks;
    if (walks) participant = participants_.try_emplace(pass, std::move(participant)).first->second;
    return std::move(admission.actions);
  });
  if (!walks) return;
  std::vector<Marking> entries;
  for (const MarkingArgs& message : messages) entries.push_back(MarkingOf(message));
  calls_->executor().Post([self = shared_from_this(), participant, asker, entries = std::move(entries)]() mutable {
    self->WalkFrom(participant, asker, std::move(entries));
  });
}

void Protocol::OnGradients(const std::shared_ptr<IncomingCall>& call) {
  auto [pass, message, gradients] = DecodeValue<GradientsArgs>(call->args());
  const ParticipantPtr participant = Find(PassOf(pass));
  // Received, which is all that the sender needs to know: failures here reach the starter by themselves.
  call->Reply(Nothing());
  if (participant) Arrive(participant, MessageIdOf(message.first, message.second), std::move(gradients));
}

void Protocol::OnRun(const std::shared_ptr<IncomingCall>& call) {
  const PassKey pass = PassOf(DecodeValue<PassArgs>(call->args()));
  const Asker asker = NewAsker(call);
  Step([&] { return table_.RunAsked(pass, asker); });
}

void Protocol::OnCommit(const std::shared_ptr<IncomingCall>& call) {
  const PassKey pass = PassOf(DecodeValue<PassArgs>(call->args()));
  const ParticipantPtr participant = Find(pass);
  FailurePtr refusal;
  {
    const std::lock_guard lock(mutex_);
    refusal = table_.CommitAsked(pass);
  }
  if (refusal) return call->Fail(*refusal);
  auto failure = participant->Join();
  Step([&] { return table_.Committed(pass); });
  failure ? call->Fail(*FailureHere(std::move(*failure))) : call->Reply(Nothing());
}

void Protocol::OnAbort(const std::shared_ptr<IncomingCall>& call) {
  const auto args = DecodeValue<AbortArgs>(call->args());
  const Asker asker = NewAsker(call);
  Step([&] { return table_.AbortAsked(PassOf(std::get<0>(args)), asker, FailureOfAbort(args)); });
}

void Protocol::OnRelease(const std::shared_ptr<IncomingCall>& call) { Release(DecodeValue<int64_t>(call->args())); }

bool Protocol::Release(ContextId id) {
  std::shared_ptr<ContextState> context = interceptor_->table().Release(id);
  if (!context) return false;
  auto rest = std::make_shared<ContextState::Contents>();
  for (const WorkerId& peer : context->Close(*rest)) {
    if (peer != calls_->self().id) calls_->Notify(peer, kRelease, EncodeValue<int64_t>(id));
  }
  const auto why = std::make_shared<const Failure>(
      Failure{.code = ErrorCode::kInvalid,
              .text = "autograd context " + std::to_string(id) + " was released while a pass ran in it",
              .worker = calls_->self().name});
  Step([&] { return table_.ContextReleased(id, why); });
  // A graph and its tensors may be large, and may end in a user's destructors.
  calls_->executor().Post([context = std::move(context), rest = std::move(rest)]() mutable {
    rest.reset();
    context.reset();
  });
  return true;
}

void Protocol::OnPeerEnded(WorkerId peer, const Failure& why) {
  if (peer == calls_->self().id) return;  // it stops: see Close()
  const auto shared = std::make_shared<const Failure>(why);
  Step([&] { return table_.PeerLost(peer, shared); });
}

// Who releases a context tells whom it has called, who tell on: a lost one does not. Callers may call each other in a
// circle, so that some are left is no sign that one of them will be told. The maker is told instead, and takes this
// worker for one that it has called.
void Protocol::OnPeerDrained(WorkerId peer) {
  if (peer == calls_->self().id) return;
  const ContextTable::Bereaved bereaved = interceptor_->table().PeerGone(peer.rank);
  for (const ContextId id : bereaved.orphans) Release(id);
  for (const ContextId id : bereaved.strays) {
    if (const auto maker = calls_->Ranked(ContextTable::CreatorOf(id))) {
      calls_->Notify(*maker, kAdopt, EncodeValue(AdoptArgs(id, static_cast<int64_t>(calls_->self().id.packed()))));
    } else {
      Release(id);
    }
  }
}

void Protocol::OnAdopt(const std::shared_ptr<IncomingCall>& call) {
  const auto [id, packed] = DecodeValue<AdoptArgs>(call->args());
  const WorkerId stray = WorkerId::FromPacked(static_cast<uint64_t>(packed));
  const std::shared_ptr<ContextState> context = interceptor_->table().Find(id);
  if (!context || !context->AddPeer(stray)) calls_->Notify(stray, kRelease, EncodeValue<int64_t>(id));
}

void Protocol::Close(const Failure& why) {
  Step([&] { return table_.Close(std::make_shared<const Failure>(why)); });
}

}  // namespace gradwire::autograd
