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

std::shared_ptr<Participant> Protocol::Begin(ContextId id, const PassId& pass, bool retain_graph) {
  std::shared_ptr<ContextState> context = interceptor_->table().Find(id);
  if (!context) throw Error(UnknownContext(id, interceptor_->self().name));
  const std::lock_guard lock(mutex_);
  if (const auto lost = lost_.find(id); lost != lost_.end()) {
    if (lost->second.first == pass) throw Error(lost->second.second);
    lost_.erase(lost);
  }
  std::shared_ptr<Participant>& entry = passes_[id];
  if (!entry) {
    entry = Participant::Make(
        {.id = pass,
         .context = std::move(context),
         .retain_graph = retain_graph,
         .is_starter = pass.starter == calls_->self().id,
         .calls = calls_,
         .current = [interceptor = interceptor_]() -> const CurrentContext& { return interceptor->current(); },
         .describe = describe_});
  } else if (entry->id() != pass) {
    throw Error(ErrorCode::kInvalid, "a backward pass started by worker " + std::to_string(entry->id().starter.rank) +
                                         " runs in autograd context " + std::to_string(id) + " already: one at a time");
  }
  return entry;
}

Failure Protocol::NotHere(ContextId context, const PassId& id) const {
  const std::lock_guard lock(mutex_);
  const auto lost = lost_.find(context);
  if (lost != lost_.end() && lost->second.first == id) return lost->second.second;
  return {.code = ErrorCode::kCancelled, .text = "the backward pass has ended here already"};
}

std::shared_ptr<Participant> Protocol::Find(ContextId context, const PassId& id) const {
  const std::lock_guard lock(mutex_);
  const auto it = passes_.find(context);
  return it != passes_.end() && it->second->id() == id ? it->second : nullptr;
}

void Protocol::Forget(const std::shared_ptr<Participant>& participant) {
  std::shared_ptr<Participant> last;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto it = passes_.find(participant->context()->id());
  if (it == passes_.end() || it->second != participant) return;
  last = std::move(it->second);
  passes_.erase(it);
}

size_t Protocol::passes() const {
  const std::lock_guard lock(mutex_);
  return passes_.size();
}

void Protocol::OnMark(const std::shared_ptr<IncomingCall>& call) {
  const auto [pass, retain_graph, messages] = DecodeValue<MarkArgs>(call->args());
  const auto participant = Begin(std::get<0>(pass), PassIdOf(pass), retain_graph);
  participant->BeginWalk(call->caller().id);
  calls_->executor().Post([call, participant, messages = messages] {
    std::vector<NodePtr> entries;
    for (const auto& message : messages) entries.push_back(participant->context()->FindSend(MessageIdOf(message)));
    participant->Walk(std::move(entries), [call](std::optional<Failure> failure, const std::set<WorkerId>& reached) {
      if (failure) return call->Fail(std::move(*failure));
      std::vector<int64_t> workers;
      for (const WorkerId& worker : reached) workers.push_back(static_cast<int64_t>(worker.packed()));
      call->Reply(EncodeValue(workers));
    });
  });
}

void Protocol::OnGradients(const std::shared_ptr<IncomingCall>& call) {
  auto [pass, message, gradients] = DecodeValue<GradientsArgs>(call->args());
  const auto participant = Find(std::get<0>(pass), PassIdOf(pass));
  // Received, which is all that the sender needs to know: failures here reach the starter by themselves.
  call->Reply(Nothing());
  if (!participant) return;  // aborted meanwhile
  if (const NodePtr entry = participant->context()->FindSend(MessageIdOf(message))) {
    participant->Arrive(entry, std::move(gradients));
  } else {
    participant->Fail({.code = ErrorCode::kInvalid, .text = "gradients came for a message that was never sent"});
  }
}

void Protocol::OnRun(const std::shared_ptr<IncomingCall>& call) {
  const auto args = DecodeValue<PassArgs>(call->args());
  const auto participant = Find(std::get<0>(args), PassIdOf(args));
  if (!participant) return call->Fail(NotHere(std::get<0>(args), PassIdOf(args)));
  participant->WhenDone(
      [call](const std::optional<Failure>& failure) { failure ? call->Fail(*failure) : call->Reply(Nothing()); });
}

void Protocol::OnCommit(const std::shared_ptr<IncomingCall>& call) {
  const auto args = DecodeValue<PassArgs>(call->args());
  const auto participant = Find(std::get<0>(args), PassIdOf(args));
  if (!participant) return call->Fail(NotHere(std::get<0>(args), PassIdOf(args)));
  auto failure = participant->Commit();
  if (failure) return call->Fail(std::move(*failure));
  Forget(participant);
  call->Reply(Nothing());
}

void Protocol::OnAbort(const std::shared_ptr<IncomingCall>& call) {
  const auto args = DecodeValue<PassArgs>(call->args());
  const auto participant = Find(std::get<0>(args), PassIdOf(args));
  if (!participant) return call->Reply(Nothing());
  participant->Abort([self = shared_from_this(), call, participant] {
    self->Forget(participant);
    call->Reply(Nothing());
  });
}

void Protocol::OnRelease(const std::shared_ptr<IncomingCall>& call) { Release(DecodeValue<int64_t>(call->args())); }

bool Protocol::Release(ContextId id) {
  std::shared_ptr<ContextState> context = interceptor_->table().Release(id);
  if (!context) return false;
  auto rest = std::make_shared<ContextState::Contents>();
  for (const WorkerId& peer : context->Close(*rest)) {
    if (peer != calls_->self().id) calls_->Notify(peer, kRelease, EncodeValue<int64_t>(id));
  }
  std::shared_ptr<Participant> participant;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = passes_.find(id); it != passes_.end()) participant = it->second;
    lost_.erase(id);
  }
  if (participant) {
    participant->Fail({.code = ErrorCode::kInvalid,
                       .text = "autograd context " + std::to_string(id) + " was released while a pass ran in it",
                       .worker = calls_->self().name});
  }
  // A graph and its tensors may be large, and may end in a user's destructors.
  calls_->executor().Post([context = std::move(context), rest = std::move(rest)]() mutable {
    rest.reset();
    context.reset();
  });
  return true;
}

void Protocol::OnPeerEnded(WorkerId peer, const Failure& why) {
  std::vector<std::shared_ptr<Participant>> orphans;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [context, participant] : passes_) {
      if (!participant->MayNotEndWithout(peer)) continue;
      orphans.push_back(participant);
      if (participant->id().starter != calls_->self().id) lost_[context] = {participant->id(), why};
    }
  }
  for (const auto& orphan : orphans) {
    orphan->Fail(why);
    // A starter's own pass is aborted by its backward.
    if (orphan->id().starter == calls_->self().id) continue;
    orphan->Abort([self = shared_from_this(), orphan] { self->Forget(orphan); });
  }
  for (ContextId id : interceptor_->table().PeerEnded(peer.rank)) Release(id);
}

}  // namespace gradwire::autograd
