// Calls with encoded arguments and results: what the typed interface, the Python package and every layer stand on.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gradwire/error.h"
#include "gradwire/export.h"
#include "gradwire/payload.h"
#include "gradwire/unique_function.h"
#include "gradwire/worker_info.h"

namespace gradwire {

// What became of a call.
class GRADWIRE_API Outcome {
 public:
  Outcome(Payload value) : result_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Outcome(Failure failure) : result_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return result_.index() == 0; }
  // Of one that is not ok().
  const Failure& failure() const { return std::get<Failure>(result_); }
  // The value; throws Error when the call failed.
  Payload& value();

 private:
  std::variant<Payload, Failure> result_;
};

// Called once, on a pool thread; must not throw.
using Completion = UniqueFunction<void(Outcome)>;

// A call that is under way, for its caller; cheap to copy.
class GRADWIRE_API CallHandle {
 public:
  class Canceller {
   public:
    virtual ~Canceller() = default;
    virtual bool CancelCall(uint64_t call) = 0;
  };
  CallHandle() = default;  // of no call
  CallHandle(std::weak_ptr<Canceller> canceller, uint64_t call) : canceller_(std::move(canceller)), call_(call) {}

  // Ends the call with kCancelled unless it has ended; true when it did, and its completion has run on this thread. The
  // callee does not start it if it has not yet, tells its handler (IncomingCall::OnCancelled()) if it has, and discards
  // its result. Any thread, at any time.
  bool Cancel() const;

 private:
  std::weak_ptr<Canceller> canceller_;
  uint64_t call_ = 0;
};

// What layers above the calls keep with one call, by slot number (src/rpc/interceptor.h lists who uses which).
using CallState = std::array<std::shared_ptr<void>, 3>;

struct CallOptions {
  static constexpr std::chrono::milliseconds kDefaultTimeout{-1};
  std::chrono::milliseconds timeout = kDefaultTimeout;  // 0: none; the worker's own timeout when negative (C2)
  // What errors call the function, for one whose registered name tells a program nothing; that name when empty.
  std::string shown_as = {};
};

// A call as its callee sees it. Answer exactly once, from any thread; an unanswered one answers kInternal when dropped.
class GRADWIRE_API IncomingCall {
 public:
  virtual ~IncomingCall() = default;

  // Who calls, by what name, with what. The arguments are the handler's until it answers. Throw nothing.
  virtual const WorkerInfo& caller() const = 0;
  virtual const std::string& function() const = 0;
  virtual Payload& args() = 0;

  // Calls `tell` on a pool thread once the caller has cancelled the call or, unless the result stays here, is gone; at
  // once, on this thread, when that has happened already. An answer destroys it, but one that was called just before
  // may run a little later. One for each call. Any thread.
  virtual void OnCancelled(UniqueFunction<void()> /*tell*/) {}

  // The result stays here, behind a remote reference: Reply() may pass a LocalObject, and nothing is encoded.
  virtual bool keeps_result() const = 0;

  // The caller has cancelled it, or is gone, and awaits no result: what takes long may look from time to time. Any
  // thread.
  virtual bool cancelled() const = 0;

  // The arguments are released first; a handler must not use them after it. Not under a role unless the function is
  // short. A value that cannot be encoded fails the call. Error(kInvalid) when it has been answered already.
  virtual void Reply(Payload value) = 0;
  virtual void Fail(Failure failure) = 0;

  // Answers a call that was cancelled, or whose deadline is over, before its work has begun (C2): true, and the handler
  // must leave it. Asked before a handler starts; for handlers that put calls aside first.
  virtual bool RefuseIfLate() { return false; }

  // What a report of running work calls its function, for one whose registered name tells a program nothing.
  virtual void ShowAs(std::string) {}

  // Makes the call's surroundings (autograd context) current on this thread until the returned object is destroyed
  // on the same thread. For handlers that answer later, from another thread (C6). A handler starts inside one.
  virtual std::shared_ptr<void> Enter() = 0;

  // Runs `answer` inside the surroundings; what it throws fails the call, as it would in the handler. Resume() on this
  // thread, Post() on a pool thread: for a thread that holds locks of its own.
  virtual void Resume(UniqueFunction<void()> answer) = 0;
  virtual void Post(UniqueFunction<void()> answer) = 0;
};

// The same of the call that the current thread serves, for functions that do not see it; false when it serves none.
GRADWIRE_API bool this_call_cancelled();

// Serves calls, several at a time, on pool threads (a short function's under the read role). What it throws fails the
// call (C5).
using Handler = std::function<void(const std::shared_ptr<IncomingCall>&)>;

struct FunctionOptions {
  // May run under the read role, in header order: takes microseconds, waits for nothing, runs no user's code (O2).
  bool is_short = false;
  // Of a short function, asked for each call with the function's name and arguments: false sends this one to the pool.
  // Under the read role.
  std::function<bool(const std::string& function, const Payload& args)> is_short_for;
  // Short, and never anything else: a step of a table that must happen in header order. Others lose the flag when they
  // turn out slow.
  bool is_ordered = false;
  // Belongs to the library's own bookkeeping: shutdown does not wait for it to become quiet. Of a program's it means
  // nothing.
  bool is_internal = false;
};

}  // namespace gradwire
