// Rpc: calls between the workers of a group. The facade of this layer, before sessions, pending calls and dispatch.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/worker_set.h"
#include "gradwire/call.h"
#include "gradwire/faults.h"
#include "gradwire/function.h"
#include "rpc/bulk_budget.h"
#include "rpc/interceptor.h"
#include "rpc/members.h"
#include "transport/transport.h"

namespace gradwire::rpc {

// One call to make.
struct Call {
  WorkerId to;
  std::string function;
  Payload args;
  CallOptions options;
  bool keep_result = false;  // `remote`: the callee keeps the value
  bool internal = false;     // of the library's own bookkeeping: shutdown does not wait for it
  bool is_control = false;   // waits for no credit (C4), as internal ones: its handler is short
  // The completion only steps tables and posts: it may run under the read role.
  bool short_completion = false;
  CallState state;
};

class Rpc {
 public:
  struct Options {
    Peer self;
    std::string job_key;
    std::chrono::milliseconds timeout{60'000};  // default of calls; 0: none
    std::shared_ptr<Clock> clock;
    std::shared_ptr<Executor> executor;
    std::vector<std::shared_ptr<transport::Transport>> transports;
    std::shared_ptr<Functions> functions;                    // the program's
    std::shared_ptr<Functions> internal_functions;           // the layers', looked up first: of this worker alone
    std::vector<std::shared_ptr<Interceptor>> interceptors;  // in order of OnSend; replies see them in reverse
    bool is_open = false;                                    // whoever knows the job's key may join
    size_t max_bulk_bytes = size_t{1} << 40;                 // storages of one message
    // Of large messages that have been announced and not yet handled; by default what fits the machine.
    std::optional<BulkBudget::Limits> max_bytes_in_flight;
    std::shared_ptr<Faults> faults;                          // of tests; may be empty
    bool refuse_without_credit = false;                      // kOverloaded instead of a wait (C4)
    // Of the group (docs/membership.md); see JoinGroup().
    std::chrono::milliseconds heartbeat_limit{10'000};
    // This worker has been declared lost, or is cut off: all calls have failed with this reason, later ones will too.
    // May run under a role.
    std::function<void(const Failure&)> on_fenced;
    // A peer lives, but cannot be reached from here: calls to it have failed with `why`. Without it: it can be reached
    // again. May run under a role.
    std::function<void(const Peer&, const std::optional<Failure>& why)> on_peer_reach;
    // Whom the layers above wait for by other means than calls: their silence is a loss, too.
    std::function<WorkerSet()> awaited;
    // A peer's session has ended, after its calls were failed. May run under a role.
    std::function<void(const Peer&, const Failure&)> on_peer_ended;
    // After that: the last frame that came from it has been handled. May run under a role.
    std::function<void(const Peer&)> on_peer_drained;
  };
  explicit Rpc(Options options);
  ~Rpc();  // Stop()
  Rpc(const Rpc&) = delete;

  // Begins to listen; the addresses to publish.
  std::vector<std::string> Listen();

  // Who is in the group; before the first call.
  Members& members();

  // Whether nobody listens any more where this member did. Waits for an answer of its machine, a second at most.
  bool IsGone(WorkerId member);

  // From now on this worker answers those who watch it, as one of the group that all members form: those of a fixed
  // group, else itself. Once all are there, StartWatching() has it watch them: who dies, freezes or is cut off is
  // declared lost by the group (M1). Without it a pair ends as soon as it has no connection for the grace time.
  void JoinGroup();
  void StartWatching();

  // Queues the call. `done` runs once, on the executor, or on the thread that cancels the call. Throws Error when the
  // call fails before its send step (O5): nothing is left behind then. Without credit (C4) it waits until the call is
  // queued or has ended, but not on a thread that runs a task: there the call waits by itself. Any thread; not under a
  // role unless the arguments carry no reference.
  CallHandle Send(Call call, Completion done);

  // The same, and waits. The value is decoded on this thread. Throws Error only before the send step.
  Outcome SendAndWait(Call call);

  // A request without a reply: delivered once and in order, or lost with the session. Throws nothing. `args` carry no
  // reference. May be called in the send step (Interceptor::OnEnqueue).
  void Notify(WorkerId to, const std::string& function, Payload args);

  struct Counts {
    uint64_t sent = 0;  // requests sent and served, those of internal functions left out
    uint64_t handled = 0;
    size_t pending = 0;    // calls that wait for their reply, and
    size_t serving = 0;    // calls that run, internal ones left out
    uint64_t dropped = 0;  // requests that were not started: their deadline was over (C2), or they were cancelled
    bool operator==(const Counts&) const = default;
  };
  Counts counts() const;

  // What is under way, a line for each call with its function, the other worker and how long; the oldest first, no more
  // than `most` of a kind. Internal calls, short ones, and those without a reply are left out.
  struct Work {
    std::vector<std::string> runs;    // of others, here
    std::vector<std::string> awaits;  // of this worker
  };
  Work work(size_t most) const;

  // The worker-wide send step mutex is held while `step` runs: for layers that must order their own tables with what
  // they send (O5).
  void InSendStep(UniqueFunction<void()> step);

  size_t sessions() const;  // with how many peers, those that have ended included

  const Peer& self() const;
  Clock& clock();
  const std::shared_ptr<Executor>& executor();
  Functions& functions();
  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout);

  // Leaves all sessions: pending calls fail with kDisconnected (C1), replies of handlers that still run are dropped,
  // and what was sent before is waited for until it has arrived, a second at most.
  // Idempotent. Not from the executor.
  void Stop(const std::string& why);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace gradwire::rpc
