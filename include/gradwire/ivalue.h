// libtorch's own values (c10::IValue), such as operators and TorchScript take and return, as payloads.
#pragma once

#include "gradwire/export.h"
#include "gradwire/payload.h"

namespace c10 {
struct IValue;
struct Type;
}  // namespace c10

namespace gradwire {

// One whole value. Throws Error(kInvalid), naming the kind, for what cannot travel: generators, streams, storages,
// objects, functions.
GRADWIRE_API Payload EncodeIValue(const c10::IValue& value);

// The value of a payload as the type that a schema asks for; what the type leaves open (number, Any) the payload
// decides. Throws Error(kInvalid) for another value and for a type that cannot travel.
GRADWIRE_API c10::IValue DecodeIValue(const Payload& payload, const c10::Type& type);

}  // namespace gradwire
