// How Protocol carries out what the table of passes says: calls, their answers, wake-ups.
#include <utility>

#include "autograd/messages.h"
#include "autograd/protocol.h"

namespace gradwire::autograd {
namespace {

const std::string& FunctionOf(Question what) {
  switch (what) {
    case Question::kMark: return kMark;
    case Question::kRun: return kRun;
    case Question::kCommit: return kCommit;
    case Question::kAbort: break;
  }
  return kAbort;
}

Payload EncodeAsk(const Ask& ask) {
  const PassArgs pass = ArgsOf(ask.pass);
  if (ask.what == Question::kMark) {
    std::vector<MarkingArgs> messages;
    for (const Marking& marking : ask.messages) messages.push_back(ArgsOf(marking));
    return EncodeValue(MarkArgs{pass, ask.retain_graph, std::move(messages)});
  }
  if (ask.what == Question::kAbort) {
    return EncodeValue(
        AbortArgs{pass, static_cast<int64_t>(ask.failure->code), ask.failure->text, ask.failure->worker});
  }
  return EncodeValue(pass);
}

}  // namespace

void Protocol::CarryOut() {
  std::unique_lock lock(mutex_);
  if (is_carrying_) return;
  is_carrying_ = true;
  while (!queued_.empty()) {
    const Actions actions = std::exchange(queued_, {});
    lock.unlock();
    for (const auto& action : actions) std::visit([this](const auto& each) { Carry(each); }, action);
    lock.lock();
  }
  is_carrying_ = false;
}

void Protocol::Carry(const Ask& ask) {
  calls_->Send(ask.to, FunctionOf(ask.what), EncodeAsk(ask),
               [self = shared_from_this(),
                ask = Ask{ask.what, ask.pass, ask.to, ask.walk, false, {}, nullptr}](Outcome outcome) {
                 self->OnAnswer(ask, std::move(outcome));
               });
}

void Protocol::OnAnswer(const Ask& ask, Outcome outcome) {
  FailurePtr failure = outcome.ok() ? nullptr : std::make_shared<const Failure>(outcome.failure());
  std::set<WorkerId> workers;
  if (ask.what == Question::kMark && !failure) {
    try {
      for (const int64_t packed : DecodeValue<std::vector<int64_t>>(outcome.value())) {
        workers.insert(WorkerId::FromPacked(static_cast<uint64_t>(packed)));
      }
    } catch (const Error& error) {
      failure = std::make_shared<const Failure>(error.failure());
    }
  }
  Step([&] {
    switch (ask.what) {
      case Question::kMark: return table_.MarkAnswered(ask.pass, ask.walk, ask.to, failure, workers);
      case Question::kRun: return table_.RunAnswered(ask.pass, ask.to, failure);
      case Question::kCommit: return table_.CommitAnswered(ask.pass, ask.to, failure);
      case Question::kAbort: break;
    }
    return table_.AbortAnswered(ask.pass, ask.to);
  });
}

void Protocol::Carry(const Answer& answer) {
  std::shared_ptr<IncomingCall> call;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = askers_.find(answer.asker); at != askers_.end()) {
      call = std::move(at->second);
      askers_.erase(at);
    }
  }
  if (!call) return;
  if (answer.failure) {
    call->Fail(*answer.failure);
  } else {
    std::vector<int64_t> workers;
    for (const WorkerId& worker : answer.workers) workers.push_back(static_cast<int64_t>(worker.packed()));
    call->Reply(EncodeValue(workers));
  }
  calls_->executor().Post([call = std::move(call)] {});  // not destroyed under a role
}

void Protocol::Carry(const Feed& feed) {
  const std::lock_guard lock(mutex_);
  if (const auto at = waiting_.find(feed.pass); at != waiting_.end()) at->second->fed.Set();
}

void Protocol::Carry(const End& end) {
  std::shared_ptr<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto at = waiting_.find(end.pass);
    if (at == waiting_.end()) return;
    waiting = std::move(at->second);
    waiting_.erase(at);
  }
  waiting->failure = end.failure;
  waiting->ended.Set();
  waiting->fed.Set();
}

void Protocol::Carry(const Stop& stop) {
  if (const ParticipantPtr participant = Find(stop.pass)) participant->Stop();
}

void Protocol::Carry(const Poison& poison) {
  if (const auto context = interceptor_->table().Find(poison.context)) context->Poison(*poison.failure);
}

void Protocol::Carry(const Forget& forget) {
  ParticipantPtr participant;
  std::shared_ptr<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = waiting_.find(forget.pass); at != waiting_.end()) {
      waiting = std::move(at->second);
      waiting_.erase(at);
    }
    const auto at = participants_.find(forget.pass);
    if (at == participants_.end()) return;
    participant = std::move(at->second);
    participants_.erase(at);
  }
  calls_->executor().Post([participant = std::move(participant)] {});  // its tensors may be large, and a user's
}

}  // namespace gradwire::autograd
