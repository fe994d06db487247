// ServedCall: a call on its callee's side, from its header step to its reply.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rpc/function_entry.h"
#include "rpc/interceptor.h"
#include "rpc/session.h"

namespace gradwire::rpc {

class ServedCallImpl;

// What a served call needs from its Rpc.
class ServedCallHost {
 public:
  virtual ~ServedCallHost() = default;
  virtual const Interceptors& interceptors() const = 0;
  virtual const Peer& self() const = 0;
  virtual void SendReply(const std::shared_ptr<Session>& session, wire::Reply reply) = 0;
  virtual void SendCredit(const std::shared_ptr<Session>& session, uint64_t begun) = 0;
  virtual void Post(Task task) = 0;
  virtual Clock& clock() = 0;
  virtual void OnRefused() = 0;                     // a call that was never started
  virtual void OnServed(ServedCallImpl& call) = 0;  // once for each call
};

class ServedCallImpl final : public IncomingCall, public std::enable_shared_from_this<ServedCallImpl> {
 public:
  ServedCallImpl(std::shared_ptr<ServedCallHost> host, std::shared_ptr<Session> session, wire::Request request,
                 std::shared_ptr<Functions::Entry> entry, bool is_internal);
  ~ServedCallImpl() override;

  // Header step: interceptors see the request (read role).
  void Header();
  // Runs the handler on this thread; what it throws becomes the reply.
  void Run();
  // It had to wait for credit, and is counted against it until it begins (C4).
  void set_bounded() { is_bounded_ = true; }
  // Refuses to run a call whose written deadline is over (C2).
  void set_deadline(TimePoint deadline) { deadline_ = deadline; }
  std::optional<TimePoint> deadline() const { return deadline_; }
  const std::shared_ptr<Functions::Entry>& entry() const { return entry_; }
  bool is_internal() const { return is_internal_; }
  const wire::Request& request() const { return request_; }
  WorkerId caller_id() const { return session_->peer().id; }
  void Cancel();
  // The caller is gone: cancels the call if it runs and its result does not stay here. One that waits for a thread
  // will run.
  void Abandon();
  // Of one that ServedCalls::All() gave.
  TimePoint since() const { return since_; }
  std::string shown_as() const;

  const WorkerInfo& caller() const override { return caller_; }
  const std::string& function() const override { return request_.function; }
  Payload& args() override { return request_.args; }
  bool keeps_result() const override { return request_.keep_as.has_value(); }
  bool cancelled() const override { return cancelled_.load(); }
  void OnCancelled(UniqueFunction<void()> tell) override;
  bool RefuseIfLate() override;
  void Reply(Payload value) override;
  void Fail(Failure failure) override;
  std::shared_ptr<void> Enter() override;
  void Resume(UniqueFunction<void()> answer) override;
  void Post(UniqueFunction<void()> answer) override;
  void ShowAs(std::string name) override;

 private:
  ServedCall view() { return {session_->peer(), request_, state_}; }
  std::shared_ptr<void> EnterInterceptors();
  void NoteBegun();  // C4: run or refused; once
  void Answer(Outcome outcome);
  void Finish(Outcome outcome);
  Failure Describe(Failure failure) const;

  const std::shared_ptr<ServedCallHost> host_;
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Functions::Entry> entry_;  // nullptr: unknown function
  const bool is_internal_;                         // of the library's own bookkeeping
  const WorkerInfo caller_;
  wire::Request request_;
  CallState state_;
  std::optional<TimePoint> deadline_;
  bool is_bounded_ = false;
  std::atomic<bool> answered_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> begun_{false};
  mutable std::mutex mutex_;
  UniqueFunction<void()> tell_;  // of OnCancelled(); guarded by mutex_
  std::string shown_as_;         // guarded by mutex_
  bool is_listed_ = false;       // guarded by the mutex of ServedCalls
  TimePoint since_{};            // constant once it is listed
  friend class ServedCalls;
};

}  // namespace gradwire::rpc
