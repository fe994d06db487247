#include "rref/shell.h"

#include <utility>

#include "rref/handle.h"
#include "rref/messages.h"

namespace gradwire::rref {

std::shared_ptr<rpc::Rpc> References::Impl::rpc_or_null() const {
  std::lock_guard lock(mutex_);
  return rpc_;
}

std::shared_ptr<rpc::Rpc> References::Impl::rpc() const {
  auto rpc = rpc_or_null();
  if (!rpc) throw Error(ErrorCode::kInvalid, "the worker '" + self_.name + "' of this RRef has shut down");
  return rpc;
}

void References::Impl::SetRpc(std::shared_ptr<rpc::Rpc> rpc) {
  std::lock_guard lock(mutex_);
  rpc_.swap(rpc);
}

void References::Impl::Fetch(RRefId rref, FetchAnswer answer) {
  const Waiter waiter = NewWaiter();
  {
    std::lock_guard lock(mutex_);
    fetches_.emplace(waiter, std::move(answer));
  }
  StepOwner([&](OwnerTable& table) { return table.Fetch(rref, waiter); });
}

void References::Impl::ConfirmHere(RRefId rref, ForkId fork, ConfirmAnswer answer) {
  const Waiter waiter = NewWaiter();
  {
    std::lock_guard lock(mutex_);
    confirms_.emplace(waiter, std::move(answer));
  }
  StepOwner([&](OwnerTable& table) { return table.Confirm(rref, fork, waiter); });
}

void References::Impl::ConfirmThere(ForkId fork, ConfirmAnswer answer) {
  const Waiter waiter = NewWaiter();
  {
    std::lock_guard lock(mutex_);
    confirms_.emplace(waiter, std::move(answer));
  }
  StepUser([&](UserTable& table) { return table.Confirm(fork, waiter); });
}

void References::Impl::Tell(WorkerId owner, const char* function, RRefId rref, ForkId fork, WorkerId holder) {
  if (const auto rpc = rpc_or_null()) rpc->Notify(owner, function, EncodeIds(rref, fork, holder));
}

void References::Impl::Post(Task task) {
  const auto rpc = rpc_or_null();
  rpc ? rpc->executor()->Post(std::move(task)) : task();
}

void References::Impl::DropLater(ForkId fork) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = drops_.empty();
    drops_.push_back(fork);
  }
  if (first) Post([self = shared_from_this()] { self->SendDrops(); });
}

void References::Impl::SendDrops() {
  std::vector<ForkId> drops;
  {
    std::lock_guard lock(mutex_);
    drops.swap(drops_);
  }
  for (const ForkId& fork : drops) StepUser([&](UserTable& table) { return table.Dropped(fork); });
}

void References::Impl::Answer(const AnswerConfirm& confirm) {
  ConfirmAnswer answer;
  {
    std::lock_guard lock(mutex_);
    auto it = confirms_.find(confirm.waiter);
    if (it == confirms_.end()) return;
    answer = std::move(it->second);
    confirms_.erase(it);
  }
  answer(confirm.failure);
}

void References::Impl::Perform(OwnerTable::Actions actions) {
  for (OwnerTable::Action& action : actions) {
    if (auto* free = std::get_if<Free>(&action)) {
      // A user's value: not destroyed under a role, nor on a thread that only wanted to let go of a handle (O2).
      if (const auto rpc = rpc_or_null()) rpc->executor()->Post([value = std::move(free->value)] {});
    } else if (auto* fetch = std::get_if<AnswerFetch>(&action)) {
      FetchAnswer answer;
      {
        std::lock_guard lock(mutex_);
        auto it = fetches_.find(fetch->waiter);
        if (it == fetches_.end()) continue;
        answer = std::move(it->second);
        fetches_.erase(it);
      }
      answer(fetch->result);
    } else if (const auto* ask = std::get_if<AskReconcile>(&action)) {
      Ask(*ask);
    } else if (std::holds_alternative<NeedMembers>(action)) {
      Post([self = shared_from_this()] { self->AskMembers(); });  // AddFork needs them too, under a role
    } else {
      const auto& confirm = std::get<AnswerConfirm>(action);
      if (!confirm.failure) {
        Answer(confirm);
      } else {  // also by the last hold that goes, in a destructor
        Post([self = shared_from_this(), confirm] { self->Answer(confirm); });
      }
    }
  }
}

void References::Impl::Perform(UserTable::Actions actions) {
  for (UserTable::Action& action : actions) {
    if (const auto* drop = std::get_if<SendDropFork>(&action)) {
      Tell(drop->owner, kDropFunction, drop->rref, drop->fork, self_.id);
    } else if (const auto* ask = std::get_if<SendConfirm>(&action)) {
      AskOwner(*ask);
    } else if (const auto* probe = std::get_if<Probe>(&action)) {
      FindOut(probe->peer);
    } else if (auto* answer = std::get_if<AnswerReconcile>(&action)) {
      Answer(std::move(*answer));
    } else {
      Answer(std::get<AnswerConfirm>(action));
    }
  }
}

void References::Impl::AskOwner(const SendConfirm& ask) {
  const auto replied = [self = shared_from_this(), fork = ask.fork](const std::shared_ptr<const Failure>& failure) {
    self->StepUser([&](UserTable& table) { return table.ConfirmReplied(fork, failure); });
  };
  const auto rpc = rpc_or_null();
  if (!rpc) {
    return replied(std::make_shared<const Failure>(
        Failure{.code = ErrorCode::kInvalid, .text = "the worker '" + self_.name + "' has shut down"}));
  }
  rpc::Call call;
  call.to = ask.owner;
  call.function = kConfirmFunction;
  call.args = EncodeIds(ask.rref, ask.fork, self_.id);
  call.short_completion = true;
  call.is_control = true;
  try {
    rpc->Send(std::move(call), [replied](Outcome outcome) {
      replied(outcome.ok() ? nullptr : std::make_shared<const Failure>(outcome.failure()));
    });
  } catch (const Error& error) {  // an owner that has left, for one: the next to ask must not wait for this answer
    replied(std::make_shared<const Failure>(error.failure()));
  }
}

std::vector<std::shared_ptr<Reference>> References::Impl::Receive(const std::vector<wire::ReferenceRecord>& records,
                                                                  WorkerId from) {
  std::vector<std::shared_ptr<Reference>> references;
  for (const wire::ReferenceRecord& record : records) {
    std::shared_ptr<Handle> handle;
    if (record.owner == self_.id) {
      // What this worker sends to itself brings its hold along (OwnedHandle::Share).
      const Standing standing = StepOwner(
          [&](OwnerTable& table) { return from == self_.id ? table.standing(record.rref) : table.Hold(record.rref); });
      handle = std::make_shared<OwnedHandle>(shared_from_this(), record.type_name, record.rref,
                                             standing == Standing::kNoLonger);
    } else {
      // In an open group the sender may know an owner that this worker does not yet, or no more: each use says so then.
      const std::optional<rpc::Member> known = rpc()->members().Find(record.owner);
      const rpc::Peer owner =
          known
              ? known->peer
              : rpc::Peer{.id = record.owner, .name = "rank " + std::to_string(record.owner.rank) + " (unknown here)"};
      if (!record.fork) {
        handle = std::make_shared<UserHandle>(shared_from_this(), record.type_name, owner);
        handle->Drop();  // its sender had none to give any more: each use says so
      } else {
        const Arrival arrival =
            StepUser([&](UserTable& table) { return table.Received(record.rref, *record.fork, record.owner, from); });
        if (arrival == Arrival::kRefused) throw Error(ErrorCode::kInvalid, "a fork that is here already");
        if (arrival == Arrival::kTaken) {
          handle = std::make_shared<UserHandle>(shared_from_this(), record.type_name, owner, record.rref, *record.fork);
        } else {
          handle = std::make_shared<UserHandle>(shared_from_this(), record.type_name, owner);
          handle->Drop();  // as above: the owner counts nothing any more that this sender makes
        }
      }
    }
    Register(handle);
    references.push_back(std::move(handle));
  }
  return references;
}

std::vector<wire::ReferenceRecord> References::Impl::Share(const std::vector<std::shared_ptr<Reference>>& references,
                                                           WorkerId to) {
  std::vector<wire::ReferenceRecord> records;
  for (const auto& reference : references) records.push_back(static_cast<Handle&>(*reference).Share(to));
  return records;
}

void References::Impl::Register(const std::shared_ptr<Handle>& handle) {
  std::lock_guard lock(mutex_);
  handles_.emplace(handle.get(), handle);
}

std::vector<std::shared_ptr<Handle>> References::Impl::LiveHandles() {
  std::vector<std::shared_ptr<Handle>> live;
  std::lock_guard lock(mutex_);
  for (const auto& [raw, weak] : handles_) {
    if (auto handle = weak.lock()) live.push_back(std::move(handle));
  }
  return live;
}

void References::Impl::RegisterFunctions(Functions& functions) {
  const FunctionOptions ordered{.is_ordered = true};
  functions.AddHandler(
      kAddFunction,
      [this](const std::shared_ptr<IncomingCall>& call) {
        const Ids ids = DecodeIds(call->args());
        if (ids.fork.creator.rank != call->caller().id) {
          throw Error(ErrorCode::kInvalid, "a fork that another worker than its sender makes");
        }
        StepOwner([&](OwnerTable& table) { return table.AddFork(ids.rref, ids.fork, ids.holder); });
        call->Reply({});
      },
      ordered);
  functions.AddHandler(
      kDropFunction,
      [this](const std::shared_ptr<IncomingCall>& call) {
        const Ids ids = DecodeIds(call->args());
        StepOwner([&](OwnerTable& table) { return table.DropFork(ids.rref, ids.fork, ids.holder); });
        call->Reply({});
      },
      ordered);
  const FunctionOptions own{.is_ordered = true, .is_internal = true};
  functions.AddHandler(
      kReconcileFunction, [this](const std::shared_ptr<IncomingCall>& call) { OnQuestion(call); }, own);
  functions.AddHandler(kProbeFunction, [](const std::shared_ptr<IncomingCall>& call) { call->Reply({}); }, own);
  functions.AddHandler(
      kConfirmFunction,
      [this](const std::shared_ptr<IncomingCall>& call) {
        const Ids ids = DecodeIds(call->args());
        ConfirmHere(ids.rref, ids.fork, [call](const std::shared_ptr<const Failure>& failure) {
          failure ? call->Fail(*failure) : call->Reply({});
        });
      },
      ordered);
  functions.AddHandler(
      kFetchFunction,
      [this](const std::shared_ptr<IncomingCall>& call) {
        const auto executor = rpc()->executor();
        Fetch(DecodeIds(call->args()).rref, [call, executor](const Result& result) {
          // Encoding may take the GIL and run a user's code (O2).
          executor->Post([call, result] {
            if (result.failure) return call->Fail(*result.failure);
            call->Reply(static_cast<const Kept&>(*result.value).payload);
          });
        });
      },
      ordered);
}

void References::Impl::Close(const Failure& why) {
  const auto shared = std::make_shared<const Failure>(why);
  StepOwner([&](OwnerTable& table) { return table.Close(shared); });
  SetRpc(nullptr);
  std::unordered_map<Waiter, std::shared_ptr<IncomingCall>> questions;
  {
    std::lock_guard lock(mutex_);
    questions.swap(questions_);
  }
  for (const auto& [waiter, call] : questions) call->Fail(why);
}

}  // namespace gradwire::rref
