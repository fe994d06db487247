// The sending side of Rpc: the send step (O5), notifications and replies.
#include <algorithm>
#include <utility>

#include "rpc/function_entry.h"
#include "rpc/rpc_impl.h"
#include "rpc/send_step.h"
#include "rpc/surroundings.h"

namespace gradwire::rpc {
std::chrono::microseconds Rpc::Impl::TimeLimit(const CallOptions& options, wire::Request& request) {
  using std::chrono::microseconds;
  const bool written = options.timeout.count() >= 0;
  microseconds limit = written ? microseconds(options.timeout) : microseconds(timeout_.load());
  const bool escapes = written && limit.count() == 0;
  microseconds travels = written ? limit : microseconds(0);
  if (const std::optional<TimePoint> deadline = CurrentDeadline(); deadline && !escapes) {
    const auto left = std::chrono::duration_cast<microseconds>(*deadline - clock().Now());
    if (left.count() <= 0) return microseconds(-1);
    limit = limit.count() == 0 ? left : std::min(limit, left);
    travels = limit;
  }
  request.time_left_us = travels.count();
  return limit;
}

void Rpc::Impl::Await(const std::shared_ptr<PendingCall>& pending, std::chrono::microseconds limit) {
  const TimePoint now = clock().Now();
  if (pending->since == TimePoint{}) pending->since = now;
  pending_.Add(pending);
  if (limit.count() == 0) return;
  const TimerId timer = clock().CallAt(now + limit, [weak = weak_from_this(), id = pending->id, limit] {
    if (auto self = weak.lock()) self->Expire(id, limit);
  });
  if (!pending_.SetTimer(pending->id, timer)) clock().Cancel(timer);
}

void Rpc::Impl::Send(Call call, const std::shared_ptr<PendingCall>& pending) {
  const std::optional<Member> member = members_.Find(call.to);
  if (!member) {
    throw Error(ErrorCode::kUnknownWorker, "rank " + std::to_string(call.to.rank) + " is not in this group");
  }
  const Peer& to = member->peer;
  const std::shared_ptr<Session> session = SessionWith(to);
  std::optional<Failure> fenced;
  if (!session && !(fenced = Fenced())) throw Error(Stopped());

  if (!call.internal) {
    if (const auto entry = options_.internal_functions->Find(call.function); entry && entry->is_internal) {
      throw Error(ErrorCode::kInvalid, "'" + call.function + "' is a function of gradwire's own, not for programs");
    }
  }

  wire::Request request;
  request.call_id = pending_.NextId();
  request.function = std::move(call.function);
  request.args = std::move(call.args);
  const std::chrono::microseconds limit = TimeLimit(call.options, request);
  pending->id = request.call_id;
  pending->to = to;
  pending->shown_as = call.options.shown_as.empty() ? request.function : std::move(call.options.shown_as);
  pending->internal = call.internal;
  pending->keeps_result = call.keep_result;
  pending->state = std::move(call.state);

  if (fenced) return EndWithout(pending, std::move(*fenced));
  if (limit.count() < 0) {
    return EndWithout(pending, {.code = ErrorCode::kTimedOut,
                                .text = "RPC ran for more than its deadline allows in the call of '" +
                                        pending->shown_as + "' on worker '" + to.name + "': it was not sent"});
  }
  if (options_.faults) {
    if (auto failure = options_.faults->FailSend(request.function, call.keep_result)) {
      return EndWithout(pending, std::move(*failure));
    }
  }
  OutgoingCall view{to, request, pending->state, call.keep_result};
  for (const auto& interceptor : options_.interceptors) interceptor->OnSend(view);
  wire::EncodedMessage message = wire::Encode(request);
  Outgoing outgoing{session, std::move(request), std::move(message), call.keep_result, pending, limit};
  if (call.internal || call.is_control) {
    session->credit().Count();
    SendNow(outgoing);
  } else if (session->credit().Take()) {
    SendNow(outgoing);
  } else {
    SendWithCredit(std::move(outgoing));
  }
}

void Rpc::Impl::SendNow(Outgoing& call) {
  std::optional<Failure> refused;
  try {
    refused = SendStep(call);
  } catch (...) {
    Admit(call.session->credit().GiveBack());
    throw;
  }
  if (!refused) return call.session->Flush();
  // The callee is gone: an error of the call, not of its arguments, so it comes from the completion.
  if (auto mine = pending_.Take(call.pending->id)) EndWithout(mine, std::move(*refused));
}

// The callee has too many requests that it has not begun: the call waits in the table, where its timeout, a cancel and
// the end of the session find it, and its arguments end with it. Nothing of it has been sent and no id is taken (O5).
void Rpc::Impl::SendWithCredit(Outgoing call) {
  if (options_.refuse_without_credit) {
    throw Error(ErrorCode::kOverloaded, "worker '" + call.pending->to.name + "' takes no more calls now: " +
                                            std::to_string(Credit::kWindow) + " wait there to be begun");
  }
  const std::shared_ptr<Session> session = call.session;
  const auto admitted = std::make_shared<Event>();
  // A reference has no id before its creating call has gone: that is waited for on any thread.
  const bool blocks = !call.pending->waits && (call.keep_result || !options_.executor->InTask());
  const auto pending = std::move(call.pending);  // which owns the rest
  call.since = clock().Now();
  const std::chrono::microseconds limit = call.limit;
  pending->admitted = admitted;
  pending->unsent = std::make_shared<Outgoing>(std::move(call));
  Await(pending, limit);
  Task send = [self = shared_from_this(), session, id = pending->id] { self->SendAdmitted(*session, id); };
  if (session->credit().TakeOrKeep(send)) send();
  if (blocks) options_.executor->Await(*admitted);
}

void Rpc::Impl::SendAdmitted(Session& session, CallId id) {
  const std::shared_ptr<PendingCall> mine = pending_.BeginSend(id);
  if (!mine) return Admit(session.credit().GiveBack());  // it has ended meanwhile
  const auto call = std::static_pointer_cast<Outgoing>(std::exchange(mine->unsent, nullptr));
  const auto admitted = std::exchange(mine->admitted, nullptr);
  call->pending = mine;
  if (const TimerId timer = std::exchange(mine->timer, 0)) clock().Cancel(timer);
  try {
    if (call->limit.count() > 0) {
      const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(clock().Now() - call->since);
      call->limit = std::max(call->limit - waited, std::chrono::microseconds(1));
      if (call->request.time_left_us > 0) {
        call->request.time_left_us = call->limit.count();
        wire::SetTimeLeft(call->message, call->limit.count());
      }
    }
    SendNow(*call);
  } catch (const Error& error) {
    EndWithout(mine, error.failure());
  }
  if (pending_.EndSend(id)) CancelCall(id);
  admitted->Set();
}

std::optional<Failure> Rpc::Impl::SendStep(Outgoing& call) {
  const auto& pending = call.pending;
  std::optional<SendStepLock> step;
  if (call.keep_result || !call.request.args.references.empty()) {
    step.emplace(send_step_mutex_);
    // Nothing is taken for a peer that is known to be gone. One that goes later is the owners' matter.
    if (std::optional<Failure> ended = call.session->ended_because()) {
      Await(pending, call.limit);
      return ended;
    }
    OutgoingCall view{pending->to, call.request, pending->state, call.keep_result};
    for (const auto& interceptor : options_.interceptors) interceptor->OnEnqueue(view);
  }
  wire::AppendTail(call.request, call.message);
  Await(pending, call.limit);
  if (!pending->internal) sent_.fetch_add(1);
  std::optional<Failure> refused =
      call.session->Enqueue(wire::FrameKind::kRequest, std::move(call.message), &pending->number);
  if (refused && !pending->internal) sent_.fetch_sub(1);
  return refused;
}

Outcome Rpc::Impl::SendAndWait(Call call) {
  auto pending = std::make_shared<PendingCall>();
  pending->waits = true;
  Send(std::move(call), pending);
  Event& answered = pending->answered;
  if (!answered.is_set()) {
    if (const auto session = SessionWith(pending->to)) session->ReadUntil(answered);
  }
  if (!answered.is_set()) options_.executor->Await(answered);
  return Open(*pending);
}

bool Rpc::Impl::CancelCall(uint64_t id) {
  const auto pending = pending_.TakeToCancel(id);
  if (!pending) return false;
  if (const auto session = SessionWith(pending->to)) SendCancel(*session, id);
  Failure failure{.code = ErrorCode::kCancelled,
                  .text = "the call of '" + pending->shown_as + "' was cancelled by its caller; it may have run"};
  EndWithout(pending, std::move(failure), /*here=*/true);
  return true;
}

void Rpc::Impl::SendCancel(Session& session, CallId id) {
  if (!session.Enqueue(wire::FrameKind::kCancel, wire::Encode(wire::Cancel{id}))) session.Flush();
}

void Rpc::Impl::Notify(WorkerId to, const std::string& function, Payload args) {
  const std::optional<Member> member = members_.Find(to);
  if (!member) return;
  const std::shared_ptr<Session> session = SessionWith(member->peer);
  if (!session) return;
  // Counted like its handler counts it on the other side, or the sums of a shutdown never meet (M2).
  const auto entry = options_.internal_functions->Find(function);
  const bool internal = entry && entry->is_internal;
  if (options_.faults) {
    while (options_.faults->FailSend(function, false)) {
    }
  }
  wire::Request request;
  request.function = function;
  request.args = std::move(args);
  wire::EncodedMessage message = wire::Encode(request);
  wire::AppendTail(request, message);
  if (!internal) sent_.fetch_add(1);
  session->credit().Count();
  if (session->Enqueue(wire::FrameKind::kRequest, std::move(message))) {
    if (!internal) sent_.fetch_sub(1);
  } else {
    session->Flush();
  }
}

void Rpc::Impl::SendCredit(const std::shared_ptr<Session>& session, uint64_t begun) {
  if (!session->Enqueue(wire::FrameKind::kCredit, wire::Encode(wire::Credit{begun}))) session->Flush();
}

void Rpc::Impl::SendReply(const std::shared_ptr<Session>& session, wire::Reply reply) {
  wire::EncodedMessage message;
  try {
    message = wire::Encode(reply);
  } catch (const Error& error) {
    Failure failure = error.failure();
    failure.text = "the result cannot travel: " + failure.text;
    failure.worker = self().name;
    reply = wire::Reply{.call_id = reply.call_id, .failure = std::move(failure)};
    message = wire::Encode(reply);
  }
  {
    std::optional<SendStepLock> step;
    if (!reply.value.references.empty()) {
      step.emplace(send_step_mutex_);
      if (session->ended_because()) return;
      for (const auto& interceptor : options_.interceptors) interceptor->OnEnqueueReply(session->peer(), reply);
    }
    wire::AppendTail(reply, message);
    // A peer that has left awaits no reply.
    if (session->Enqueue(wire::FrameKind::kReply, std::move(message))) return;
  }
  session->Flush();
}

}  // namespace gradwire::rpc
