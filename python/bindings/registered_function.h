// Python functions under names of their own, which callers in any language use.
#pragma once

#include <string>

#include "call_encoder.h"
#include "gil.h"
#include "gradwire/call.h"

namespace gradwire::python {

// Lets others call `function` as `name`, with plain values for arguments and result. Throws Error(kInvalid) for a name
// that is taken, raises TypeError for what is not callable. With the lock.
void RegisterFunction(const std::string& name, py::object function);
void UnregisterFunction(const std::string& name);  // Error(kInvalid) when there is none; calls under way go on

// A call of one. With the lock.
DecodedCall DecodeRegisteredCall(IncomingCall& call);

// The result of one. Raises TypeError for a value that only Python could read. With the lock.
Payload EncodeRegisteredResult(IncomingCall& call, py::handle result);

}  // namespace gradwire::python
