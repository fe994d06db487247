// Interceptor: how the layers above add to calls without the call layer knowing them (protocols: Calls).
//
// One call goes through: OnSend, OnEnqueue | OnHeader, OnDispatch, OnReply, OnEnqueueReply | OnReplyHeader,
// OnReplyReceived. The bar stands for the wire. All of them may throw Error before the send step; after it none may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "gradwire/call.h"
#include "wire/call.h"

namespace gradwire::rpc {

// Who uses which entry of CallState.
enum class StateSlot : size_t { kAutograd = 0, kReferences = 1, kTrace = 2 };

// A peer as the call layer knows it.
struct Peer {
  WorkerId id;
  std::string name;
};

// What an interceptor sees of a call on the caller's side.
struct OutgoingCall {
  const Peer& to;
  wire::Request& request;
  CallState& state;
  bool keep_result = false;  // `remote`: ids are taken in OnEnqueue
};

// And on the callee's.
struct ServedCall {
  const Peer& from;
  wire::Request& request;
  CallState& state;
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;

  // Whether it reads this extension field, one whose tag has the bit kRequired.
  virtual bool Reads(uint16_t /*tag*/) const { return false; }

  // Caller's thread, no lock: may add extension fields and replace tensors of the arguments.
  virtual void OnSend(OutgoingCall&) {}

  // In the send step, under the worker's send-step mutex (O5). Called only for messages that carry references or keep
  // their result. Fills `request.references` and `request.keep_as`; messages it sends itself go out before this one.
  virtual void OnEnqueue(OutgoingCall&) {}
  virtual void OnEnqueueReply(const Peer& /*to*/, wire::Reply&) {}

  // Under the read role, in header order, before any later header of the same peer is looked at (O1, O2).
  virtual void OnHeader(ServedCall&) {}
  virtual void OnReplyHeader(const Peer& /*from*/, wire::Reply&, CallState&) {}

  // Around the handler: what it returns is destroyed on the same thread when the handler returns.
  virtual std::shared_ptr<void> OnDispatch(ServedCall&) { return nullptr; }

  // Callee, after the handler, before the reply is encoded: may add extension fields.
  virtual void OnReply(ServedCall&, wire::Reply&) {}

  // The result of a call whose request says KeepAs. True: taken.
  virtual bool OnKeep(ServedCall&, Outcome&) { return false; }

  // Caller, before the value is decoded; not under a role. May fail the call by throwing Error.
  virtual void OnReplyReceived(wire::Reply&, CallState&) {}

  // The call ended without a reply (C1): timed out, lost, stopped.
  virtual void OnNoReply(const Failure&, CallState&) {}
};

using Interceptors = std::vector<std::shared_ptr<Interceptor>>;

// Throws Error(kInvalid) for a required field that none of them reads; `what` it came with stands in the text.
void CheckRequired(const Interceptors& interceptors, const std::vector<wire::Extension>& extensions,
                   const std::string& what);

}  // namespace gradwire::rpc
