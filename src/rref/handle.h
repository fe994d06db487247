// Handles: what programs hold of a reference, on its owner and elsewhere.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "gradwire/rref.h"
#include "rref/shell.h"

namespace gradwire::rref {

class Handle : public RRefHandle, public std::enable_shared_from_this<Handle> {
 public:
  Handle(std::shared_ptr<References::Impl> shell, std::string type_name);
  ~Handle() override;

  std::string rref_id() const override { return ToString(rref_); }
  std::string fork_id() const override { return ToString(fork_); }
  const std::string& type_name() const override { return type_name_; }
  Future<void> creation() const override { return creation_; }

  // Send step of the call that makes the value.
  virtual wire::KeepAs Create() = 0;
  // Send step of a message that carries the reference.
  virtual wire::ReferenceRecord Share(WorkerId to) = 0;
  // Throws Error unless the handle can be used and shared now; the text says for what.
  void CheckSendable() const override { CheckUsable("fork an UserRRef"); }
  virtual void CheckUsable(const char* use) const = 0;
  // The creating call has been answered, or has ended otherwise.
  virtual void OnCreated(const std::optional<Failure>& failure, bool answered) = 0;
  // Lets go once; later uses are errors that say so.
  void Drop();

 protected:
  virtual void LetGo() = 0;
  bool dropped() const { return dropped_.load(); }
  [[noreturn]] void ThrowDropped(const char* use) const;

  const std::shared_ptr<References::Impl> shell_;
  // set in the constructor or in the send step, constant afterwards
  RRefId rref_;
  ForkId fork_;
  Future<void> creation_;
  friend class References;

 private:
  std::atomic<bool> dropped_{false};
  const std::string type_name_;
};

// On the owner: one hold in the owner table.
class OwnedHandle final : public Handle {
 public:
  // Of a value that a message names, or that is about to be made. `gone`: it is no longer there.
  OwnedHandle(std::shared_ptr<References::Impl> shell, std::string type_name);
  OwnedHandle(std::shared_ptr<References::Impl> shell, std::string type_name, RRefId rref, bool gone);
  ~OwnedHandle() override { Drop(); }

  WorkerInfo owner() const override;
  bool is_owner() const override { return true; }
  bool confirmed_by_owner() override { return true; }
  void Fetch(CallOptions options, Completion done) override;
  Outcome FetchAndWait(CallOptions options) override;
  Outcome LocalValue(CallOptions options) override { return FetchAndWait(options); }

  wire::KeepAs Create() override;
  wire::ReferenceRecord Share(WorkerId to) override;
  void CheckUsable(const char* use) const override;
  void OnCreated(const std::optional<Failure>& failure, bool answered) override;

 private:
  void LetGo() override;

  std::atomic<bool> holds_{false};
  const bool gone_ = false;
  mutable std::mutex mutex_;
  std::optional<Failure> unanswered_;  // the creating call never left, or ended without an answer; guarded by mutex_
};

// Elsewhere: one fork in the user table.
class UserHandle final : public Handle {
 public:
  UserHandle(std::shared_ptr<References::Impl> shell, std::string type_name, rpc::Peer owner);
  UserHandle(std::shared_ptr<References::Impl> shell, std::string type_name, rpc::Peer owner, RRefId rref, ForkId fork);
  ~UserHandle() override { Drop(); }

  WorkerInfo owner() const override { return {owner_.name, owner_.id.rank, owner_.id.incarnation}; }
  bool is_owner() const override { return false; }
  bool confirmed_by_owner() override;
  void Fetch(CallOptions options, Completion done) override;
  Outcome FetchAndWait(CallOptions options) override;
  Outcome LocalValue(CallOptions options) override;

  wire::KeepAs Create() override;
  wire::ReferenceRecord Share(WorkerId to) override;
  void CheckUsable(const char* use) const override;
  void OnCreated(const std::optional<Failure>& failure, bool answered) override;

 private:
  void LetGo() override;
  rpc::Call FetchCall(CallOptions options) const;

  const rpc::Peer owner_;
  std::atomic<bool> has_fork_{false};
  mutable std::mutex mutex_;
  std::optional<Failure> unsent_;  // the creating call never left; guarded by mutex_
};

}  // namespace gradwire::rref
