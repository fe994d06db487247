// libtorch's own values, the arguments and results of operators, as tagged values (docs/wire.md, "Values").
#pragma once

#include "gradwire/value.h"

namespace c10 {
struct IValue;
struct Type;
}  // namespace c10

namespace gradwire::wire {

// Throws Error(kInvalid), naming the kind, for what cannot travel: generators, streams, storages, objects, functions.
void WriteIValue(ValueWriter& writer, const c10::IValue& value);

// Reads a value of the type that a schema asks for; what the type leaves open (number, Any) the tag decides. Throws
// Error(kInvalid) for another value and for a type that cannot travel.
c10::IValue ReadIValue(ValueReader& reader, const c10::Type& type);

}  // namespace gradwire::wire
