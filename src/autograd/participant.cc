#include "autograd/participant.h"

#include <algorithm>
#include <string>
#include <utility>

#include "autograd/messages.h"

namespace gradwire::autograd {
namespace {

Failure Aborted() { return {.code = ErrorCode::kCancelled, .text = "the backward pass was aborted"}; }

}  // namespace

// The marks of one walk that wait for their answers.
struct Participant::Join {
  Join(size_t count, std::set<WorkerId> reached, Marked done)
      : left(count), workers(std::move(reached)), done(std::move(done)) {}

  void Answer(std::optional<Failure> failure, const std::set<WorkerId>& reached) {
    {
      const std::lock_guard lock(mutex);
      if (answered) return;
      workers.insert(reached.begin(), reached.end());
      if (--left > 0 && !failure) return;
      answered = true;
    }
    done(std::move(failure), workers);
  }

  std::mutex mutex;
  size_t left;
  bool answered = false;
  std::set<WorkerId> workers;
  const Marked done;
};

std::shared_ptr<Participant> Participant::Make(Setup setup) {
  return std::shared_ptr<Participant>(new Participant(std::move(setup)));
}

Participant::Participant(Setup setup)
    : setup_(std::move(setup)),
      pass_({.retain_graph = setup_.retain_graph,
             .leave = [this](const RecvBackward& node, TensorList gradients) { Leave(node, std::move(gradients)); },
             .describe = setup_.describe,
             .carry_thread_state = setup_.is_starter}) {}

void Participant::BeginWalk(int64_t marker) {
  const std::lock_guard lock(mutex_);
  ++activity_;
  ++walks_;
  markers_.insert(marker);
}

bool Participant::MayNotEndWithout(WorkerId peer) const {
  const std::lock_guard lock(mutex_);
  if (setup_.id.starter == peer) return true;
  return (phase_ == Phase::kOpen || phase_ == Phase::kFailed) && markers_.count(peer.rank) > 0;
}

std::map<WorkerId, std::vector<MessageId>> Participant::Count(std::vector<NodePtr> entries) {
  std::map<WorkerId, std::vector<MessageId>> marks;
  while (!entries.empty()) {
    if (std::find(entries.begin(), entries.end(), nullptr) != entries.end()) {
      throw Error(ErrorCode::kInvalid, "a message that is not in autograd context " +
                                           std::to_string(setup_.context->id()) + " was to take part in a pass");
    }
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(entries, [&](const NodePtr& entry) { return !entries_.try_emplace(entry.get(), false).second; });
      missing_ += entries.size();
    }
    const std::vector<RecvPtr> reached = pass_.Reach(entries);
    entries.clear();
    for (const RecvPtr& recv : reached) {
      if (recv->peer() != setup_.calls->self().id) {
        marks[recv->peer()].push_back(recv->message());
      } else {
        entries.push_back(setup_.context->FindSend(recv->message()));
      }
    }
  }
  return marks;
}

void Participant::Walk(std::vector<NodePtr> entries, Marked done) {
  const std::set<WorkerId> self{setup_.calls->self().id};
  std::map<WorkerId, std::vector<MessageId>> marks;
  std::optional<Failure> failure;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (runs_) throw Error(ErrorCode::kInvalid, "a mark came for a pass that runs");
    }
    marks = Count(std::move(entries));
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen) {
      failure = failure_.value_or(Aborted());
    } else {
      for (const auto& [peer, messages] : marks) marked_.insert(peer);
    }
  } catch (const Error& error) {
    failure = error.failure();
  } catch (const std::exception& error) {
    failure = Failure{.code = ErrorCode::kInternal, .text = error.what()};
  }
  {
    const std::lock_guard lock(mutex_);
    --walks_;
  }
  if (failure || marks.empty()) {
    EndActivity();
    done(std::move(failure), self);
    return;
  }
  SendMarks(marks, std::make_shared<Join>(marks.size(), self, std::move(done)));
  EndActivity();
}

void Participant::SendMarks(const std::map<WorkerId, std::vector<MessageId>>& marks,
                            const std::shared_ptr<Join>& join) {
  for (const auto& [to, messages] : marks) {
    MarkArgs args{ArgsOf(setup_.context->id(), setup_.id), setup_.retain_graph, {}};
    for (const MessageId& message : messages) std::get<2>(args).push_back(ArgsOf(message));
    setup_.calls->Send(to, kMark, EncodeValue(args), [join](Outcome outcome) {
      std::set<WorkerId> reached;
      std::optional<Failure> failure;
      try {
        for (int64_t packed : DecodeValue<std::vector<int64_t>>(outcome.value())) {
          reached.insert(WorkerId::FromPacked(static_cast<uint64_t>(packed)));
        }
      } catch (const Error& error) {
        failure = error.failure();
      }
      join->Answer(std::move(failure), reached);
    });
  }
}

void Participant::WhenDone(UniqueFunction<void(const std::optional<Failure>&)> done) {
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kOpen) {
      when_done_.push_back(std::move(done));
      return;
    }
    if (phase_ == Phase::kFailed || phase_ == Phase::kAborted) failure = failure_.value_or(Aborted());
  }
  done(failure);
}

void Participant::Arrive(const NodePtr& entry, TensorList gradients) {
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen) return;
    const auto it = entries_.find(entry.get());
    runs_ = true;
    if (it == entries_.end() || it->second || walks_ > 0) {
      failure =
          Failure{.code = ErrorCode::kInvalid, .text = "gradients came for a message that takes no part in the pass"};
    } else {
      it->second = true;
      ++activity_;
    }
  }
  if (failure) return Fail(std::move(*failure));
  {
    const CurrentContext::Scope scope(setup_.current(), setup_.context);
    failure = pass_.Arrive(entry, std::move(gradients));
  }
  if (failure) {
    failure->text = "Error on Node " + std::to_string(setup_.calls->self().id.rank) + ": " + failure->text;
    failure->worker = setup_.calls->self().name;
    Fail(std::move(*failure));
  } else {
    const std::lock_guard lock(mutex_);
    --missing_;
  }
  EndActivity();
}

void Participant::Leave(const RecvBackward& node, TensorList gradients) {
  const WorkerId peer = node.peer();
  if (peer == setup_.calls->self().id) {
    NodePtr entry = setup_.context->FindSend(node.message());
    if (!entry) throw Error(ErrorCode::kInvalid, "the context was released during the pass");
    setup_.calls->executor().Post([self = shared_from_this(), entry, gradients = std::move(gradients)]() mutable {
      self->Arrive(entry, std::move(gradients));
    });
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ++unacknowledged_;
  }
  const GradientsArgs args{ArgsOf(setup_.context->id(), setup_.id), ArgsOf(node.message()), std::move(gradients)};
  setup_.calls->Send(peer, kGradients, EncodeValue(args),
                     [self = shared_from_this()](Outcome outcome) { self->OnAcknowledged(outcome); });
}

void Participant::OnAcknowledged(const Outcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    --unacknowledged_;
    ++activity_;
  }
  if (!outcome.ok()) Fail(outcome.failure());
  EndActivity();
}

void Participant::EndActivity() {
  bool abort_now = false, finish_now = false;
  {
    const std::lock_guard lock(mutex_);
    --activity_;
    abort_now = phase_ == Phase::kAborted && activity_ == 0 && when_aborted_;
    finish_now = phase_ == Phase::kOpen && activity_ == 0 && !entries_.empty() && missing_ == 0 &&
                 unacknowledged_ == 0 && !finishing_;
    if (finish_now) finishing_ = true, ++activity_;
  }
  if (abort_now) AbortMarked();
  if (finish_now) FinishRun();
}

void Participant::FinishRun() {
  std::optional<Failure> failure;
  std::vector<LeafGradient> gradients;
  try {
    gradients = pass_.Finish();
  } catch (const std::exception& error) {
    failure = Failure{.code = ErrorCode::kInternal, .text = std::string("adding up gradients failed: ") + error.what()};
  }
  if (failure) {
    Fail(std::move(*failure));
  } else {
    DoneCallbacks callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ == Phase::kOpen) {
        phase_ = Phase::kDone;
        gradients_ = std::move(gradients);
        callbacks.swap(when_done_);
      }
    }
    for (auto& callback : callbacks) callback(std::nullopt);
  }
  EndActivity();
}

void Participant::Fail(Failure failure) {
  DoneCallbacks callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kOpen && phase_ != Phase::kDone) return;
    phase_ = Phase::kFailed;
    failure_ = failure;
    callbacks.swap(when_done_);
  }
  pass_.Stop();
  for (auto& callback : callbacks) callback(failure);
}

std::optional<Failure> Participant::Commit() {
  std::vector<LeafGradient> gradients;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kDone) {
      return failure_.value_or(Failure{.code = ErrorCode::kInvalid, .text = "the backward pass is not done here"});
    }
    phase_ = Phase::kCommitted;
    gradients.swap(gradients_);
  }
  try {
    setup_.context->Join(std::move(gradients));
  } catch (const std::exception& error) {
    return Failure{.code = ErrorCode::kInternal, .text = std::string("adding up gradients failed: ") + error.what()};
  }
  return std::nullopt;
}

void Participant::Abort(UniqueFunction<void()> done) {
  DoneCallbacks callbacks;
  bool is_first = false, is_quiet = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = phase_ != Phase::kAborted && phase_ != Phase::kCommitted;
    if (is_first) {
      phase_ = Phase::kAborted;
      when_aborted_ = std::move(done);
      callbacks.swap(when_done_);
      is_quiet = activity_ == 0;
    }
  }
  if (!is_first) return done();
  pass_.Stop();
  for (auto& callback : callbacks) callback(Aborted());
  if (is_quiet) setup_.calls->executor().Post([self = shared_from_this()] { self->AbortMarked(); });
}

void Participant::AbortMarked() {
  struct Left {
    std::mutex mutex;
    size_t count = 0;
    UniqueFunction<void()> done;
  };
  auto left = std::make_shared<Left>();
  std::set<WorkerId> peers;
  {
    const std::lock_guard lock(mutex_);
    left->done = std::move(when_aborted_);
    when_aborted_ = nullptr;
    peers = marked_;
  }
  if (!left->done) return;  // another thread does it
  left->count = peers.size();
  if (peers.empty()) return left->done();
  for (const WorkerId& peer : peers) {
    // What is lost has aborted.
    setup_.calls->Send(peer, kAbort, EncodeValue(ArgsOf(setup_.context->id(), setup_.id)), [left](const Outcome&) {
      {
        const std::lock_guard lock(left->mutex);
        if (--left->count > 0) return;
      }
      left->done();
    });
  }
}

}  // namespace gradwire::autograd
