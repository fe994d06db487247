// Operators: the functions "aten.*", which run libtorch's operators by name.
#pragma once

#include "gradwire/function.h"
#include "gradwire/operators.h"

namespace gradwire::ops {

// Registers the family. Cheap operators on small tensors are short; everything else runs on the pool.
void RegisterOperators(Functions& functions);

// Whether a call of `function` takes microseconds: an operator that works element by element, on few elements.
bool IsShort(const std::string& function, const Payload& args);

}  // namespace gradwire::ops
