// The sending side of Rpc: the send step (O5), notifications and replies.
#include <algorithm>
#include <utility>

#include "rpc/deadline.h"
#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

Failure Stopped(const std::string& self, const std::string& why) {
  return {.code = ErrorCode::kInvalid, .text = "worker '" + self + "' makes no calls any more: " + why, .worker = self};
}

}  // namespace

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
  pending_.Add(pending);
  if (limit.count() == 0) return;
  const TimerId timer = clock().CallAt(clock().Now() + limit, [weak = weak_from_this(), id = pending->id, limit] {
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
  if (!session) throw Error(Stopped(self().name, stop_reason()));

  wire::Request request;
  request.call_id = pending_.NextId();
  request.function = std::move(call.function);
  request.args = std::move(call.args);
  const std::chrono::microseconds limit = TimeLimit(call.options, request);
  pending->id = request.call_id;
  pending->to = to;
  pending->function = request.function;
  pending->internal = call.internal;
  pending->state = std::move(call.state);

  if (limit.count() < 0) {
    return EndWithout(pending, {.code = ErrorCode::kTimedOut,
                                .text = "RPC ran for more than its deadline allows: the call of '" + request.function +
                                        "' on worker '" + to.name + "' was not sent"});
  }
  if (options_.faults) {
    if (auto failure = options_.faults->FailSend(request.function, call.keep_result)) {
      return EndWithout(pending, std::move(*failure));
    }
  }
  OutgoingCall view{to, request, pending->state, call.keep_result};
  for (const auto& interceptor : options_.interceptors) interceptor->OnSend(view);
  wire::EncodedMessage message = wire::Encode(request);

  if (std::optional<Failure> refused = SendStep(*session, view, std::move(message), pending, limit)) {
    // The callee is gone: an error of the call, not of its arguments, so it comes from the completion.
    if (auto mine = pending_.Take(pending->id)) EndWithout(mine, std::move(*refused));
    return;
  }
  session->Flush();
}

std::optional<Failure> Rpc::Impl::SendStep(Session& session, OutgoingCall& call, wire::EncodedMessage message,
                                           const std::shared_ptr<PendingCall>& pending,
                                           std::chrono::microseconds limit) {
  std::unique_lock step(send_step_mutex_, std::defer_lock);
  if (call.keep_result || !call.request.args.references.empty()) {
    step.lock();
    // Nothing is taken for a peer that is known to be gone. One that goes later is the owners' matter.
    if (std::optional<Failure> ended = session.ended_because()) {
      Await(pending, limit);
      return ended;
    }
    for (const auto& interceptor : options_.interceptors) interceptor->OnEnqueue(call);
  }
  wire::AppendTail(call.request, message);
  Await(pending, limit);
  if (!pending->internal) sent_.fetch_add(1);
  std::optional<Failure> refused = session.Enqueue(wire::FrameKind::kRequest, std::move(message));
  if (refused && !pending->internal) sent_.fetch_sub(1);
  return refused;
}

Outcome Rpc::Impl::SendAndWait(Call call) {
  auto pending = std::make_shared<PendingCall>();
  pending->waits = true;
  Send(std::move(call), pending);
  if (!pending->answered.is_set()) options_.executor->Await(pending->answered);
  return Open(*pending);
}

bool Rpc::Impl::CancelCall(uint64_t id) {
  const auto pending = pending_.Take(id);
  if (!pending) return false;
  if (const auto session = SessionWith(pending->to)) {
    if (!session->Enqueue(wire::FrameKind::kCancel, wire::Encode(wire::Cancel{id}))) session->Flush();
  }
  EndWithout(pending, {.code = ErrorCode::kCancelled,
                       .text = "the call of '" + pending->function + "' was cancelled by its caller; it may have run"});
  return true;
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
  if (session->Enqueue(wire::FrameKind::kRequest, std::move(message))) {
    if (!internal) sent_.fetch_sub(1);
  } else {
    session->Flush();
  }
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
    std::unique_lock step(send_step_mutex_, std::defer_lock);
    if (!reply.value.references.empty()) {
      step.lock();
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
