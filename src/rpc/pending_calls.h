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
  bool waits = false;               // a thread waits for `answered`; else `done` is called
  bool short_completion = false;    // `done` may run under a role
  std::shared_ptr<Event> admitted;  // of a call that waits for credit: set once it does not
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
  // nullptr when somebody else has taken it.
  std::shared_ptr<PendingCall> Take(CallId id);
  std::vector<std::shared_ptr<PendingCall>> TakeAllTo(WorkerId peer);
  std::vector<std::shared_ptr<PendingCall>> TakeAll();
  // A copy of the state that its interceptors gave the call; empty when it is no longer there.
  CallState StateOf(CallId id) const;
  // Without the internal ones.
  std::vector<std::shared_ptr<const PendingCall>> All() const;
  size_t size() const;
  size_t external() const;  // without the internal ones

 private:
  mutable std::mutex mutex_;
  CallId last_id_ = 0;
  size_t external_ = 0;
  std::unordered_map<CallId, std::shared_ptr<PendingCall>> calls_;
};

}  // namespace gradwire::rpc
