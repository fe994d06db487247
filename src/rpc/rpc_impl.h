// Rpc::Impl: joins sessions, pending calls and served calls. Private to the layer.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "rpc/group.h"
#include "rpc/link.h"
#include "rpc/pending_calls.h"
#include "rpc/rpc.h"
#include "rpc/served_call.h"
#include "rpc/served_calls.h"
#include "rpc/session.h"

namespace gradwire::rpc {

class Rpc::Impl final : public SessionHost,
                        public LinkHost,
                        public ServedCallHost,
                        public GroupHost,
                        public CallHandle::Canceller,
                        public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(Options options);

  std::vector<std::string> Listen();
  // Checks, encodes and sends; `pending` is in the table when this returns.
  void Send(Call call, const std::shared_ptr<PendingCall>& pending);
  Outcome SendAndWait(Call call);
  void Notify(WorkerId to, const std::string& function, Payload args);
  Counts counts() const;
  Work WorkNow(size_t most) const;
  void Stop(const std::string& why);
  void JoinGroup();
  void StartWatching();
  bool IsGone(WorkerId member);
  size_t sessions() const;

  // SessionHost
  void Dial(const std::shared_ptr<Session>& session, uint64_t dial) override;
  Task OnRequest(const std::shared_ptr<Session>& session, wire::Request request) override;
  Task OnReply(const std::shared_ptr<Session>& session, wire::Reply reply) override;
  void OnCancel(const std::shared_ptr<Session>& session, const wire::Cancel& cancel) override;
  bool FindMemoryNow(const std::shared_ptr<Session>& session, std::vector<wire::BulkTarget>& storages,
                     const std::shared_ptr<BulkBudget::Lease>& lease) override;
  void FindMemory(const std::shared_ptr<Session>& session, uint64_t number,
                  std::vector<wire::BulkTarget> storages, const std::shared_ptr<BulkBudget::Lease>& lease) override;
  Duration silence_limit() const override { return options_.heartbeat_limit; }
  bool AwaitsAnswer(const Peer& peer) const override { return pending_.any_to(peer.id); }
  void OnSilent(const std::shared_ptr<Session>& session, const Failure& why) override;
  void OnEnded(const std::shared_ptr<Session>& session, const Failure& reason, uint64_t never_sent) override;
  void OnDrained(const std::shared_ptr<Session>& session) override;
  void Admit(std::vector<Task> sends) override;
  void Discard(std::vector<Task> tasks) override;
  size_t max_bulk_bytes() const override { return options_.max_bulk_bytes; }

  // LinkHost
  const Peer& self() const override { return options_.self; }
  const std::string& job_key() const override { return options_.job_key; }
  std::optional<Member> FindMember(WorkerId id) const override { return members_.Find(id); }
  std::optional<Member> Admit(const Peer& stranger) override;
  std::shared_ptr<Session> AcceptingSession(const Peer& peer) override;
  Clock& clock() override { return *options_.clock; }
  HalfOpen& half_open() override { return half_open_; }

  // ServedCallHost
  const Interceptors& interceptors() const override { return options_.interceptors; }
  void SendReply(const std::shared_ptr<Session>& session, wire::Reply reply) override;
  void SendCredit(const std::shared_ptr<Session>& session, uint64_t begun) override;
  void Post(Task task) override { options_.executor->Post(std::move(task)); }
  void OnRefused() override { dropped_.fetch_add(1); }
  void OnServed(ServedCallImpl& call) override;

  // GroupHost
  void SendLetter(WorkerId to, std::string bytes) override;
  std::optional<TimePoint> LastHeard(WorkerId worker) override;
  WorkerSet Awaited() override;
  void Probe(WorkerId worker, Duration limit, UniqueFunction<void(Probed)> done) override;
  void EndSession(WorkerId worker, uint64_t epoch, const Failure& why) override;
  void FailPair(WorkerId worker, const Failure& why) override;
  void OnReached(WorkerId worker) override;
  void OnView(uint64_t epoch, const WorkerSet& members) override;
  void OnFenced(const Failure& why) override;
  std::string NameOf(WorkerId worker) const override;

  // CallHandle::Canceller
  bool CancelCall(uint64_t id) override;

  const Options options_;
  Members members_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex send_step_mutex_;  // O5; above the sessions' own

 private:
  // The session that calls to the peer go through; nullptr when the group has ended here.
  std::shared_ptr<Session> SessionWith(const Peer& peer);
  // Why no calls are made any more: the group goes on without this worker, or it has stopped.
  std::optional<Failure> Fenced() const;
  Failure Stopped() const;
  std::shared_ptr<Group> group() const;
  std::optional<std::vector<std::shared_ptr<Session>>> TakeSessions(const std::string& why, bool fenced);
  void ForgetOldest(const std::shared_ptr<Session>& ended);
  // `sent`: it may have run.
  void FailCall(const std::shared_ptr<PendingCall>& pending, Failure why, bool sent);
  // How long the caller waits (0: for ever, negative: its time is over), and what of it travels (C2).
  std::chrono::microseconds TimeLimit(const CallOptions& options, wire::Request& request);
  // Puts the call into the table and arms its timer.
  void Await(const std::shared_ptr<PendingCall>& pending, std::chrono::microseconds limit);
  // A call between its encoding and its send step.
  struct Outgoing {
    std::shared_ptr<Session> session;
    wire::Request request;
    wire::EncodedMessage message;
    bool keep_result = false;
    std::shared_ptr<PendingCall> pending;
    std::chrono::microseconds limit;  // from now, or from `since` when it waits for credit
    TimePoint since{};
  };
  void SendNow(Outgoing& call);
  void SendWithCredit(Outgoing call);
  void SendAdmitted(Session& session, CallId id);
  void SendCancel(Session& session, CallId id);
  // The reason when the peer's session has ended: nothing was sent. `pending` is in the table either way.
  std::optional<Failure> SendStep(Outgoing& call);
  // Fails the call unless it has ended otherwise.
  void Expire(CallId id, std::chrono::microseconds limit);
  void EndWithout(const std::shared_ptr<PendingCall>& pending, Failure failure, bool here = false);
  // Whether a fault delays the call: it is dispatched later.
  bool Delay(const std::shared_ptr<ServedCallImpl>& call);
  void Dispatch(std::shared_ptr<ServedCallImpl> call);
  // `here`: the completion runs on this thread, which holds no lock.
  void Deliver(std::shared_ptr<PendingCall> pending, bool here = false);
  Outcome Open(PendingCall& pending);

  const std::shared_ptr<BulkBudget> budget_;
  PendingCalls pending_;
  ServedCalls served_;
  HalfOpen half_open_;
  std::atomic<uint64_t> sent_{0}, handled_{0}, serving_{0}, dropped_{0};
  mutable std::mutex sessions_mutex_;
  std::string stop_reason_;  // not empty once stopped; guarded by sessions_mutex_, as what follows
  bool fenced_ = false;      // the group has stopped it
  std::shared_ptr<Group> group_;
  std::unordered_map<WorkerId, std::shared_ptr<Session>> sessions_;
  std::deque<WorkerId> ended_;  // of sessions_, those of an open group that have ended; the oldest first
  std::shared_ptr<Session> own_accepting_;  // of calls to oneself, their callee's side
};

}  // namespace gradwire::rpc
