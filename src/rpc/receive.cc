// The receiving side of Rpc: header steps, dispatch, replies and the ends of calls and sessions.
#include <utility>

#include "base/log.h"
#include "rpc/borrowed_read.h"
#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

constexpr size_t kAllocatedAtOnce = size_t{16} << 20;

size_t SizeOf(const std::vector<wire::BulkTarget>& storages) {
  size_t bytes = 0;
  for (const wire::BulkTarget& storage : storages) bytes += storage.size;
  return bytes;
}

}  // namespace

Task Rpc::Impl::OnRequest(const std::shared_ptr<Session>& session, wire::Request request) {
  auto entry = options_.internal_functions->Find(request.function);
  const bool is_internal = entry && entry->is_internal;
  // What bears a name of the library's own may be control, which waits for no credit: only programs' calls are bounded.
  const bool is_bounded = !entry;
  if (!entry) entry = options_.functions->Find(request.function);
  const int64_t time_left_us = request.time_left_us;
  auto call = std::make_shared<ServedCallImpl>(shared_from_this(), session, std::move(request), entry, is_internal);
  if (is_bounded) {
    session->credit().Arrive();
    call->set_bounded();
  }
  if (time_left_us > 0) call->set_deadline(clock().Now() + std::chrono::microseconds(time_left_us));
  if (!is_internal) serving_.fetch_add(1);
  // One that runs at once cannot be cancelled.
  if (!entry || !entry->is_short) served_.Add(call, clock());
  call->Header();
  return [this, call = std::move(call)]() mutable {
    if (!options_.faults || !Delay(call)) Dispatch(std::move(call));
  };
}

bool Rpc::Impl::Delay(const std::shared_ptr<ServedCallImpl>& call) {
  if (call->request().call_id == 0) return false;
  const auto delay = options_.faults->DelayOf(call->function(), call->keeps_result());
  if (delay.count() <= 0) return false;
  clock().CallAt(clock().Now() + delay, [self = shared_from_this(), call] {
    self->options_.executor->Post([self, call] { self->Dispatch(call); });
  });
  return true;
}

void Rpc::Impl::Dispatch(std::shared_ptr<ServedCallImpl> call) {
  const auto& entry = call->entry();
  if (entry && (entry->is_ordered || !BorrowedRead::on_this_thread()) &&
      entry->RunsInline(call->function(), call->args())) {
    const TimePoint begin = clock().Now();
    call->Run();
    entry->NoteInlineRun(clock().Now() - begin);
    return;
  }
  served_.Add(call, clock());
  const bool is_internal = call->is_internal();
  const WorkerId caller = call->caller_id();
  Task run = [self = shared_from_this(), call = std::move(call)] {
    if (!call->RefuseIfLate()) call->Run();
  };
  if (is_internal) {
    options_.executor->Post(std::move(run));
  } else {
    options_.executor->PostHandler(caller.packed(), std::move(run));
  }
}

Task Rpc::Impl::OnReply(const std::shared_ptr<Session>& session, wire::Reply reply) {
  CallState state = pending_.StateOf(reply.call_id, session->peer().id);
  for (const auto& interceptor : options_.interceptors) interceptor->OnReplyHeader(session->peer(), reply, state);
  return [this, reply = std::move(reply), from = session->peer().id]() mutable {
    if (auto pending = pending_.Take(reply.call_id, from)) {
      pending->reply = std::move(reply);
      Deliver(std::move(pending));
    } else if (!reply.value.references.empty()) {
      // Too late for its caller. Handles let go of what they hold elsewhere, not under a role.
      options_.executor->Post([late = std::move(reply)] {});
    }
  };
}

void Rpc::Impl::OnCancel(const std::shared_ptr<Session>& session, const wire::Cancel& cancel) {
  // Advice: the caller has given up by itself already. Nothing is there when the call has ended, or runs at once.
  auto call = served_.Find(session->peer().id, cancel.call_id);
  if (!call) return;
  call->Cancel();
  options_.executor->Post([call = std::move(call)] {});  // perhaps the last one: not destroyed under a role
}

Outcome Rpc::Impl::Open(PendingCall& pending) {
  try {
    if (pending.no_reply) {
      for (const auto& interceptor : options_.interceptors) interceptor->OnNoReply(*pending.no_reply, pending.state);
      return std::move(*pending.no_reply);
    }
    pending.reply.lease.reset();
    wire::CheckArrived(pending.reply.value);
    const auto& all = options_.interceptors;
    CheckRequired(all, pending.reply.extensions, "the reply to '" + pending.shown_as + "'");
    for (auto it = all.rbegin(); it != all.rend(); ++it) (*it)->OnReplyReceived(pending.reply, pending.state);
  } catch (const Error& error) {
    return error.failure();
  }
  if (pending.reply.failure) return std::move(*pending.reply.failure);
  return std::move(pending.reply.value);
}

void Rpc::Impl::Deliver(std::shared_ptr<PendingCall> pending, bool here) {
  if (pending->timer != 0) clock().Cancel(pending->timer);
  if (pending->admitted) pending->admitted->Set();
  if (pending->waits) {
    pending->answered.Set();
  } else if (pending->short_completion || here) {
    pending->done(Open(*pending));
  } else {
    options_.executor->Post(
        [self = shared_from_this(), pending = std::move(pending)] { pending->done(self->Open(*pending)); });
  }
}

void Rpc::Impl::EndWithout(const std::shared_ptr<PendingCall>& pending, Failure failure, bool here) {
  if (failure.worker.empty()) failure.worker = pending->to.name;
  pending->no_reply = std::move(failure);
  Deliver(pending, here);
}

void Rpc::Impl::Expire(CallId id, std::chrono::microseconds limit) {
  auto pending = pending_.Take(id);
  if (!pending) return;
  pending->timer = 0;
  EndWithout(pending, {.code = ErrorCode::kTimedOut,
                       .text = "RPC ran for more than set timeout (" + std::to_string(limit.count() / 1000) +
                               " ms) in the call of '" + pending->shown_as + "' on worker '" + pending->to.name +
                               "', which has not answered"});
}

void Rpc::Impl::OnServed(ServedCallImpl& call) {
  served_.Remove(call);
  if (call.is_internal()) return;
  handled_.fetch_add(1);
  serving_.fetch_sub(1);
}

void Rpc::Impl::OnSilent(const std::shared_ptr<Session>& session, const Failure& why) {
  if (const auto judge = group()) return judge->OnNoPath(session->peer().id, why);
  session->End(why);
}

void Rpc::Impl::FailCall(const std::shared_ptr<PendingCall>& pending, Failure why, bool sent) {
  why.text += "; the call of '" + pending->shown_as + (sent ? "' may have run" : "' has not run");
  EndWithout(pending, std::move(why));
}

void Rpc::Impl::OnEnded(const std::shared_ptr<Session>& session, const Failure& reason, uint64_t never_sent) {
  if (const auto judge = group()) judge->OnSessionEnded(session->peer().id, session->ended_how(), reason);
  for (const auto& pending : pending_.TakeAllTo(session->peer().id)) {
    FailCall(pending, reason, pending->number != 0 && pending->number < never_sent);
  }
  if (auto served = served_.AllOf(session->peer().id); !served.empty()) {
    for (const auto& call : served) call->Abandon();
    options_.executor->Post([served = std::move(served)] {});  // perhaps the last ones: not destroyed under a role
  }
  // One without a name only asked whether this worker lives (Admit): it was no member whose rank means anything.
  if (options_.on_peer_ended && !session->peer().name.empty()) options_.on_peer_ended(session->peer(), reason);
}

void Rpc::Impl::OnDrained(const std::shared_ptr<Session>& session) {
  ForgetOldest(session);
  if (options_.on_peer_drained && !session->peer().name.empty()) options_.on_peer_drained(session->peer());
}

// The system gives so much at once, without a look at it: a page costs when it is written. More is asked for on the
// executor, and its first bytes are sent in vain meanwhile.
bool Rpc::Impl::FindMemoryNow(const std::shared_ptr<Session>& session, std::vector<wire::BulkTarget>& storages,
                              const std::shared_ptr<BulkBudget::Lease>& lease) {
  const size_t bytes = SizeOf(storages);
  if (bytes > kAllocatedAtOnce || !budget_->Take(lease, session->peer().id, bytes)) return false;
  try {
    wire::Allocate(storages);
  } catch (const Error&) {
    return false;
  }
  return true;
}

void Rpc::Impl::FindMemory(const std::shared_ptr<Session>& session, uint64_t number,
                           std::vector<wire::BulkTarget> storages, const std::shared_ptr<BulkBudget::Lease>& lease) {
  const size_t bytes = SizeOf(storages);
  const auto without = [session, number](const Error& error) {
    Log(LogLevel::kWarning, "no memory for a message of worker '" + session->peer().name + "': " + error.what());
    session->OnMemory(number, std::nullopt);
  };
  try {
    budget_->Ask(lease, session->peer().id, bytes,
                 [session, number, without, storages = std::move(storages)]() mutable {
                   try {
                     wire::Allocate(storages);
                   } catch (const Error& error) {
                     return without(error);
                   }
                   session->OnMemory(number, std::move(storages));
                 });
  } catch (const Error& error) {
    Post([without, error] { without(error); });
  }
}

void Rpc::Impl::Admit(std::vector<Task> sends) {
  if (sends.empty()) return;
  options_.executor->Post([sends = std::move(sends)]() mutable {
    for (Task& send : sends) send();
  });
}

void Rpc::Impl::Discard(std::vector<Task> tasks) {
  options_.executor->Post([dropped = std::move(tasks)]() mutable { dropped.clear(); });
}

}  // namespace gradwire::rpc
