// Operators of libtorch as functions of every worker: "aten.add.Tensor" runs aten::add.Tensor on the callee.
#pragma once

#include <string>
#include <vector>

#include "gradwire/export.h"
#include "gradwire/payload.h"

namespace c10 {
struct IValue;
}

namespace gradwire {

// What starts the name of each such function.
inline constexpr const char* kOperatorPrefix = "aten.";

// The function that runs an operator: "aten::add" and "Tensor" become "aten.add.Tensor". Empty for another namespace.
GRADWIRE_API std::string OperatorFunction(const std::string& name, const std::string& overload);

// The arguments of such a call, one for each argument of the operator's schema, in its order. Throws Error(kInvalid)
// for what cannot travel, a generator for one. The result is a value, or a tuple of them when the schema has several.
GRADWIRE_API Payload EncodeOperatorArguments(const std::vector<c10::IValue>& arguments);

}  // namespace gradwire
