#include "rref/handle.h"

#include <algorithm>
#include <utility>

#include "rref/messages.h"

namespace gradwire::rref {
namespace {

// What a use of a reference says when its creation did not end as it should. The function's own error stays as it is.
Failure CreationFailure(const Failure& failure) {
  if (failure.code == ErrorCode::kRemote) return failure;
  Failure told = failure;
  told.text = "RRef creation failed: " + failure.text;
  return told;
}

std::chrono::milliseconds LimitOf(const CallOptions& options, const rpc::Rpc& rpc) {
  return options.timeout.count() < 0 ? rpc.timeout() : std::min(options.timeout, kLongestLimit);
}

Outcome ToOutcome(const Result& result) {
  if (result.failure) return *result.failure;
  return static_cast<const Kept&>(*result.value).payload;
}

}  // namespace

Handle::Handle(std::shared_ptr<References::Impl> shell, std::string type_name)
    : shell_(std::move(shell)), type_name_(std::move(type_name)) {}

Handle::~Handle() {
  std::lock_guard lock(shell_->mutex_);
  shell_->handles_.erase(this);
}

void Handle::Drop() {
  if (!dropped_.exchange(true)) LetGo();
}

void Handle::ThrowDropped(const char* use) const {
  throw Error(ErrorCode::kInvalid,
              std::string("Cannot call ") + use + " after deletion. RRef " + rref_id() + " was dropped by a shutdown");
}

OwnedHandle::OwnedHandle(std::shared_ptr<References::Impl> shell, std::string type_name)
    : Handle(std::move(shell), std::move(type_name)) {}

OwnedHandle::OwnedHandle(std::shared_ptr<References::Impl> shell, std::string type_name, RRefId rref, bool gone)
    : Handle(std::move(shell), std::move(type_name)), holds_(!gone), gone_(gone) {
  rref_ = rref;
  fork_ = {rref.creator, rref.number};
}

WorkerInfo OwnedHandle::owner() const {
  const rpc::Peer& self = shell_->self();
  return {self.name, self.id.rank, self.id.incarnation};
}

wire::KeepAs OwnedHandle::Create() {
  rref_ = {shell_->self().id, shell_->NextNumber()};
  fork_ = {shell_->self().id, shell_->NextNumber()};
  shell_->StepOwner([&](OwnerTable& table) { return table.CreateLocal(rref_), true; });
  holds_.store(true);
  return {rref_, fork_};
}

wire::ReferenceRecord OwnedHandle::Share(WorkerId to) {
  wire::ReferenceRecord record{.owner = shell_->self().id, .rref = rref_, .type_name = type_name()};
  if (to == shell_->self().id) {
    // A message to oneself has no fork that would outlive this handle on its way: it carries a hold, which the handle
    // on the other end adopts (R1).
    (void)shell_->StepOwner([&](OwnerTable& table) { return table.Hold(rref_); });
    return record;
  }
  const ForkId fork{shell_->self().id, shell_->NextNumber()};
  const Standing standing = shell_->StepOwner([&](OwnerTable& table) { return table.GiveFork(rref_, fork, to); });
  if (standing != Standing::kNoLonger) record.fork = fork;
  return record;
}

void OwnedHandle::CheckUsable(const char* use) const {
  if (gone_) throw Error(*shell_->StepOwner([&](const OwnerTable& table) { return table.WhyNoLonger(rref_); }));
  if (dropped()) ThrowDropped(use);
  std::lock_guard lock(mutex_);
  if (unanswered_) throw Error(*unanswered_);
}

void OwnedHandle::OnCreated(const std::optional<Failure>& failure, bool answered) {
  if (failure && !answered) {
    {
      std::lock_guard lock(mutex_);
      unanswered_ = CreationFailure(*failure);
    }
    // A worker that is not in its group any more loses its calls to itself, too: nobody makes the value.
    const bool waits_on = failure->code == ErrorCode::kTimedOut || failure->code == ErrorCode::kCancelled;
    if (holds_ && !waits_on) {
      const Result lost = Result::Of(CreationFailure(*failure));
      shell_->StepOwner([&](OwnerTable& table) { return table.SetValue(rref_, lost); });
    }
  }
  if (!creation_.state()) return;
  if (failure) {
    creation_.state()->Fail(*failure);
  } else {
    creation_.state()->Complete(nullptr);
  }
}

void OwnedHandle::LetGo() {
  if (holds_.exchange(false)) shell_->StepOwner([&](OwnerTable& table) { return table.Release(rref_); });
}

void OwnedHandle::Fetch(CallOptions options, Completion done) {
  CheckUsable("to_here() on it");
  const auto rpc = shell_->rpc();
  struct Wait {
    std::atomic<bool> over{false};
    Completion done;
    TimerId timer = 0;
  };
  auto wait = std::make_shared<Wait>();
  wait->done = std::move(done);
  const auto limit = LimitOf(options, *rpc);
  if (limit.count() > 0) {
    wait->timer = rpc->clock().CallAt(rpc->clock().Now() + limit, [wait, executor = rpc->executor(), limit] {
      if (wait->over.exchange(true)) return;
      executor->Post([wait, limit] {
        wait->done(Failure{.code = ErrorCode::kTimedOut,
                           .text = "RPC ran for more than set timeout (" + std::to_string(limit.count()) +
                                   " ms): the value of the RRef is still being made"});
      });
    });
  }
  shell_->Fetch(rref_, [wait, rpc](const Result& result) {
    if (wait->over.exchange(true)) return;
    if (wait->timer != 0) rpc->clock().Cancel(wait->timer);
    rpc->executor()->Post([wait, result] { wait->done(ToOutcome(result)); });
  });
}

Outcome OwnedHandle::FetchAndWait(CallOptions options) {
  CheckUsable("to_here() on it");
  const auto rpc = shell_->rpc();
  struct Wait {
    Event event;
    Result result;
  };
  auto wait = std::make_shared<Wait>();
  shell_->Fetch(rref_, [wait](const Result& result) {
    wait->result = result;
    wait->event.Set();
  });
  const auto limit = LimitOf(options, *rpc);
  const bool set =
      wait->event.is_set() ||
      rpc->executor()->Await(wait->event, limit.count() == 0 ? std::nullopt : std::optional<Duration>(limit));
  if (set) return ToOutcome(wait->result);
  return Failure{.code = ErrorCode::kTimedOut,
                 .text = "RPC ran for more than set timeout (" + std::to_string(limit.count()) +
                         " ms): the value of the RRef is still being made",
                 .worker = shell_->self().name};
}

UserHandle::UserHandle(std::shared_ptr<References::Impl> shell, std::string type_name, rpc::Peer owner)
    : Handle(std::move(shell), std::move(type_name)), owner_(std::move(owner)) {}

UserHandle::UserHandle(std::shared_ptr<References::Impl> shell, std::string type_name, rpc::Peer owner, RRefId rref,
                       ForkId fork)
    : Handle(std::move(shell), std::move(type_name)), owner_(std::move(owner)), has_fork_(true) {
  rref_ = rref;
  fork_ = fork;
}

wire::KeepAs UserHandle::Create() {
  rref_ = {shell_->self().id, shell_->NextNumber()};
  fork_ = {shell_->self().id, shell_->NextNumber()};
  shell_->StepUser([&](UserTable& table) { return table.Created(rref_, fork_, owner_.id), true; });
  has_fork_.store(true);
  return {rref_, fork_};
}

wire::ReferenceRecord UserHandle::Share(WorkerId to) {
  wire::ReferenceRecord record{.owner = owner_.id, .rref = rref_, .type_name = type_name()};
  if (to == owner_.id) return record;
  const ForkId fork{shell_->self().id, shell_->NextNumber()};
  const std::optional<SendAddFork> add =
      shell_->StepUser([&](UserTable& table) { return table.Shared(fork_, fork, to); });
  if (!add) return record;
  shell_->Tell(add->owner, kAddFunction, add->rref, add->fork, add->holder);
  record.fork = fork;
  return record;
}

void UserHandle::CheckUsable(const char* use) const {
  if (dropped()) ThrowDropped(use);
  std::optional<Failure> failure;
  {
    std::lock_guard lock(mutex_);
    failure = unsent_;
  }
  if (!failure && has_fork_.load()) {
    failure = shell_->StepUser([&](const UserTable& table) -> std::optional<Failure> {
      const UserTable::Fork* fork = table.Find(fork_);
      if (fork && fork->creation_failure) return *fork->creation_failure;
      return std::nullopt;
    });
  }
  if (failure) throw Error(*failure);
}

void UserHandle::OnCreated(const std::optional<Failure>& failure, bool answered) {
  const auto told = failure ? std::make_shared<const Failure>(CreationFailure(*failure)) : nullptr;
  if (!has_fork_.load()) {
    std::lock_guard lock(mutex_);
    unsent_ = told ? *told : Failure{};
  } else {
    shell_->StepUser([&](UserTable& table) {
      return answered ? table.CreationReplied(fork_, told) : table.CreationUnanswered(fork_, told);
    });
  }
  if (!creation_.state()) return;
  if (told) {
    creation_.state()->Fail(*told);
  } else {
    creation_.state()->Complete(nullptr);
  }
}

void UserHandle::LetGo() {
  if (has_fork_.exchange(false)) shell_->DropLater(fork_);
}

bool UserHandle::confirmed_by_owner() {
  CheckUsable("confirmed_by_owner() on it");
  const auto rpc = shell_->rpc();
  struct Wait {
    Event event;
    std::shared_ptr<const Failure> failure;
  };
  auto wait = std::make_shared<Wait>();
  const bool creating = shell_->StepUser([&](const UserTable& table) {
    const UserTable::Fork* fork = table.Find(fork_);
    return fork && fork->state == UserTable::State::kCreating;
  });
  // The reply of a creating call confirms; until it is here the honest answer is no.
  if (creating) return false;
  shell_->ConfirmThere(fork_, [wait](const std::shared_ptr<const Failure>& failure) {
    wait->failure = failure;
    wait->event.Set();
  });
  if (!wait->event.is_set()) rpc->executor()->Await(wait->event);
  return wait->failure == nullptr;
}

rpc::Call UserHandle::FetchCall(CallOptions options) const {
  CheckUsable("to_here() on it");
  rpc::Call call;
  call.to = owner_.id;
  call.function = kFetchFunction;
  call.args = EncodeIds(rref_, fork_, shell_->self().id);
  call.is_control = true;
  call.options = std::move(options);
  if (call.options.shown_as.empty()) call.options.shown_as = "to_here() of an RRef";
  return call;
}

void UserHandle::Fetch(CallOptions options, Completion done) {
  rpc::Call call = FetchCall(std::move(options));
  shell_->rpc()->Send(std::move(call), [self = shared_from_this(), done = std::move(done)](Outcome outcome) mutable {
    done(std::move(outcome));
  });
}

Outcome UserHandle::FetchAndWait(CallOptions options) {
  const auto self = shared_from_this();  // the fork stays until the owner has answered
  rpc::Call call = FetchCall(std::move(options));
  return shell_->rpc()->SendAndWait(std::move(call));
}

Outcome UserHandle::LocalValue(CallOptions) {
  const auto describe = [](const std::string& name, WorkerId id) {
    return "WorkerInfo(id=" + std::to_string(id.rank) + ", name=" + name + ")";
  };
  throw Error(ErrorCode::kInvalid, "For UserRRef(rref_id=" + rref_id() + ", fork_id=" + fork_id() +
                                       "), can't call localValue() on user " +
                                       describe(shell_->self().name, shell_->self().id) + ". Call it on owner " +
                                       describe(owner_.name, owner_.id) + ", or use to_here()");
}

}  // namespace gradwire::rref
