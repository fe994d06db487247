// PendingCalls: the calls of this worker that wait for their reply. Each leaves the table exactly once (C1).
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/event.h"
#include "base/ids.h"
#include "base/worker_set.h"
#include "gradwire/call.h"
#include "rpc/interceptor.h"
#include "wire/call.h"

namespace gradwire::rpc {

struct PendingCall {
  // constant once in the table
  CallId id = 0;
  Peer to;
  std::string shown_as;  // of its function, for errors
  bool internal = false;
  bool keeps_result = false;        // others may hold its result
  bool waits = false;               // a thread waits for `answered`; else `done` is called
  bool short_completion = false;    // `done` may run under a role
  std::shared_ptr<void> unsent;     // of a call that waits for credit: what there is to send,
  std::shared_ptr<Event> admitted;  // and what is set once it does not wait any more
  uint64_t number = 0;              // of its message; 0 until it is queued. Set under the session's send mutex
  TimePoint since{};                // its first entry into the table
  TimerId timer = 0;                // by SetTimer() while in the table

  CallState state;  // the caller's until it is in the table, then of whoever took it out
  Completion done;

  // of whoever took the call out of the table
  wire::Reply reply;
  std::optional<Failure> no_reply;  // the call ended without one
  Event answered;
};

class PendingCalls {
 public:
  // The call's id, never 0.
  CallId NextId();
  void Add(std::shared_ptr<PendingCall> call);
  // False when the call has been taken already: then the timer is not needed.
  bool SetTimer(CallId id, TimerId timer);
  // nullptr when somebody else has taken it, or it was made to another than `to`.
  std::shared_ptr<PendingCall> Take(CallId id, std::optional<WorkerId> to = std::nullopt);
  // For a cancel. nullptr too for one that is just being sent: EndSend() tells of it.
  std::shared_ptr<PendingCall> TakeToCancel(CallId id);
  // Takes out one that has waited for credit, to put it in again when it is sent; nullptr when it has ended.
  std::shared_ptr<PendingCall> BeginSend(CallId id);
  // Whether a cancel came meanwhile.
  bool EndSend(CallId id);
  std::vector<std::shared_ptr<PendingCall>> TakeAllTo(WorkerId peer);
  std::vector<std::shared_ptr<PendingCall>> TakeAll();
  // For whom some call waits.
  WorkerSet Awaited() const;
  // A copy of the state that its interceptors gave the call; empty when Take() would give nothing.
  CallState StateOf(CallId id, WorkerId to) const;
  // Without the internal ones.
  std::vector<std::shared_ptr<const PendingCall>> All() const;
  size_t size() const;
  size_t external() const;  // without the internal ones
  bool any_to(WorkerId peer) const;

 private:
  std::shared_ptr<PendingCall> TakeLocked(CallId id, std::optional<WorkerId> to = std::nullopt);

  mutable std::mutex mutex_;
  CallId last_id_ = 0;
  size_t external_ = 0;
  std::unordered_map<CallId, std::shared_ptr<PendingCall>> calls_;
  std::unordered_map<WorkerId, size_t> to_peer_;  // how many of them; a peer that had none is left in it
  std::unordered_map<CallId, bool> sending_;  // between BeginSend() and EndSend(): whether a cancel came
};

}  // namespace gradwire::rpc
