// What References does about lost workers (rule 8 of docs/rref.md): asks the others, and answers them.
#include <utility>

#include "rref/messages.h"
#include "rref/shell.h"

namespace gradwire::rref {

void References::Impl::NoteLoss(WorkerId peer, const Failure& why) {
  auto shared = std::make_shared<const Failure>(why);
  std::lock_guard lock(mutex_);
  losses_.emplace(peer, std::move(shared));
}

// Looks at all entries, so not under a role. Later than the last message of the lost one, which is all that counts.
void References::Impl::Forget(WorkerId peer) {
  std::shared_ptr<const Failure> why;
  {
    std::lock_guard lock(mutex_);
    if (const auto at = losses_.find(peer); at != losses_.end()) {
      why = std::move(at->second);
      losses_.erase(at);
    }
  }
  if (!why) why = std::make_shared<const Failure>(Failure{.code = ErrorCode::kDisconnected, .text = "it is lost"});
  Post([self = shared_from_this(), peer, why] {
    self->StepUser([&](UserTable& table) { return table.PeerLost(peer); });
    self->StepOwner([&](OwnerTable& table) { return table.PeerLost(peer, why); });
  });
}

void References::Impl::AskMembers() {
  const auto rpc = rpc_or_null();
  if (!rpc) return;
  std::vector<WorkerId> members;
  for (const rpc::Member& member : rpc->members().All()) members.push_back(member.peer.id);
  StepOwner([&](OwnerTable& table) { return table.BeginRounds(members); });
}

// Waits as long as the other lives: its answer is due when it has lost the one that is asked about. When it is lost
// itself, OwnerTable::PeerLost() says so.
void References::Impl::Ask(const AskReconcile& ask) {
  const auto rpc = rpc_or_null();
  if (!rpc) return;
  rpc::Call call;
  call.to = ask.whom;
  call.function = kReconcileFunction;
  call.args = EncodeQuestion({.owner = self_.id, .about = ask.about});
  call.internal = true;
  call.is_control = true;
  call.options.timeout = std::chrono::milliseconds(0);
  try {
    rpc->Send(std::move(call), [self = shared_from_this(), ask](Outcome outcome) {
      if (!outcome.ok()) return;
      try {
        const std::vector<Gift> gifts = DecodeGifts(outcome.value(), ask.about);
        self->StepOwner([&](OwnerTable& table) { return table.Reconciled(ask.whom, ask.about, gifts); });
      } catch (const Error&) {  // not an answer: what is in doubt is kept
      }
    });
  } catch (const Error&) {  // this worker stops, or the other is no member any more
  }
}

// The answer waits until this worker has lost the other too, so let it find out. One that is no member is gone, or has
// never been met and will not be.
void References::Impl::FindOut(WorkerId peer) {
  const auto rpc = rpc_or_null();
  if (!rpc) return;
  if (rpc->members().Find(peer)) return rpc->Notify(peer, kProbeFunction, {});
  StepUser([&](UserTable& table) { return table.PeerLost(peer); });
}

void References::Impl::Answer(AnswerReconcile answer) {
  std::shared_ptr<IncomingCall> call;
  {
    std::lock_guard lock(mutex_);
    const auto at = questions_.find(answer.waiter);
    if (at == questions_.end()) return;
    call = std::move(at->second);
    questions_.erase(at);
  }
  call->Reply(EncodeGifts(answer.gifts));
}

void References::Impl::OnQuestion(const std::shared_ptr<IncomingCall>& call) {
  const Question question = DecodeQuestion(call->args());
  if (question.owner.rank != call->caller().id) {
    throw Error(ErrorCode::kInvalid, "a question in the name of another worker");
  }
  if (question.about == self_.id) throw Error(ErrorCode::kInvalid, "a question about this worker, which lives");
  const Waiter waiter = NewWaiter();
  {
    std::lock_guard lock(mutex_);
    questions_.emplace(waiter, call);
  }
  // Looks at all forks: not under a role.
  Post([self = shared_from_this(), question, waiter] {
    self->StepUser([&](UserTable& table) { return table.Reconcile(question.owner, question.about, waiter); });
  });
}

}  // namespace gradwire::rref
