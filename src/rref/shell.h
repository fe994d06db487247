// References::Impl: the tables, each behind its leaf mutex, and what carries out their actions. Private to the layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rpc/rpc.h"
#include "rref/owner_table.h"
#include "rref/references.h"
#include "rref/user_table.h"

namespace gradwire::rref {

// A value as calls left it.
struct Kept final : Value {
  explicit Kept(Payload payload) : payload(std::move(payload)) {}
  const Payload payload;
};

class Handle;

using FetchAnswer = UniqueFunction<void(const Result&)>;
using ConfirmAnswer = UniqueFunction<void(const std::shared_ptr<const Failure>&)>;

class References::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(rpc::Peer self) : self_(std::move(self)), owners_(self_.id) {}

  const rpc::Peer& self() const { return self_; }
  // Throws Error(kInvalid) once the worker has stopped.
  std::shared_ptr<rpc::Rpc> rpc() const;
  std::shared_ptr<rpc::Rpc> rpc_or_null() const;
  void SetRpc(std::shared_ptr<rpc::Rpc> rpc);

  // One counter for references and forks, from 0. In the send step, so that ids reach each owner in order (O5).
  uint64_t NextNumber() { return next_number_.fetch_add(1); }

  // Each makes one step of a table and carries out what it asks for. Answers come on whatever thread has them, under a
  // role too: they must only post or step tables.
  template <class F>
  auto StepOwner(F&& step);
  template <class F>
  auto StepUser(F&& step);
  void Fetch(RRefId rref, FetchAnswer answer);
  void ConfirmHere(RRefId rref, ForkId fork, ConfirmAnswer answer);  // on the owner
  void ConfirmThere(ForkId fork, ConfirmAnswer answer);              // elsewhere: asks the owner
  void Tell(WorkerId owner, const char* function, RRefId rref, ForkId fork, WorkerId holder);

  // The last copy of a handle is gone. Only enqueues: destructors run anywhere, under a role too (O2).
  void DropLater(ForkId fork);
  void SendDrops();

  // Header step: a handle for each record of a message.
  std::vector<std::shared_ptr<Reference>> Receive(const std::vector<wire::ReferenceRecord>& records, WorkerId from);
  // Send step: a record for each reference.
  std::vector<wire::ReferenceRecord> Share(const std::vector<std::shared_ptr<Reference>>& references, WorkerId to);

  // Rule 8: why a peer was lost; then, that nothing more comes from it. The latter is done on the executor.
  void NoteLoss(WorkerId peer, const Failure& why);
  void Forget(WorkerId peer);

  // Handles that the program holds, so that DropAll() finds them.
  void Register(const std::shared_ptr<Handle>& handle);
  std::vector<std::shared_ptr<Handle>> LiveHandles();

  void RegisterFunctions(Functions& functions);
  void Close(const Failure& why);

  mutable std::mutex owner_mutex_;  // leaf
  mutable std::mutex user_mutex_;   // leaf

 private:
  friend class References;

  void Perform(OwnerTable::Actions actions);
  void Perform(UserTable::Actions actions);
  void Answer(const AnswerConfirm& confirm);
  void AskOwner(const SendConfirm& ask);
  void AskMembers();
  void Ask(const AskReconcile& ask);
  void FindOut(WorkerId peer);
  void Answer(AnswerReconcile answer);
  void OnQuestion(const std::shared_ptr<IncomingCall>& call);
  void Post(Task task);  // at once when the worker has stopped: nothing is sent any more
  Waiter NewWaiter() { return next_waiter_.fetch_add(1); }

  const rpc::Peer self_;
  OwnerTable owners_;  // guarded by owner_mutex_
  UserTable users_;    // guarded by user_mutex_
  std::atomic<uint64_t> next_number_{0};
  std::atomic<Waiter> next_waiter_{1};

  mutable std::mutex mutex_;  // leaf; guards all below
  std::shared_ptr<rpc::Rpc> rpc_;
  std::vector<ForkId> drops_;  // to be sent by a task that is on its way unless this is empty
  std::unordered_map<Waiter, FetchAnswer> fetches_;
  std::unordered_map<Waiter, ConfirmAnswer> confirms_;
  std::unordered_map<Waiter, std::shared_ptr<IncomingCall>> questions_;  // Reconcile
  std::unordered_map<WorkerId, std::shared_ptr<const Failure>> losses_;  // why, until Forget()
  std::map<const Handle*, std::weak_ptr<Handle>> handles_;
  friend class Handle;
};

template <class F>
auto References::Impl::StepOwner(F&& step) {
  using Out = decltype(step(owners_));
  if constexpr (std::is_same_v<Out, OwnerTable::Actions>) {
    OwnerTable::Actions actions;
    {
      std::lock_guard lock(owner_mutex_);
      actions = step(owners_);
    }
    Perform(std::move(actions));
  } else {
    std::lock_guard lock(owner_mutex_);
    return step(owners_);
  }
}

template <class F>
auto References::Impl::StepUser(F&& step) {
  using Out = decltype(step(users_));
  if constexpr (std::is_same_v<Out, UserTable::Actions>) {
    UserTable::Actions actions;
    {
      std::lock_guard lock(user_mutex_);
      actions = step(users_);
    }
    Perform(std::move(actions));
  } else {
    std::lock_guard lock(user_mutex_);
    return step(users_);
  }
}

}  // namespace gradwire::rref
