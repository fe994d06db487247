// The end of a call as the end of a Python future.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <string>

#include "gil.h"
#include "gradwire/call.h"

namespace gradwire::python {

// Completes `future` (a torch.futures.Future) with the outcome's value or error, whose text says `where` it happened.
// With a `result` type the future holds libtorch's own value, which scripts can use, else an object of Python. With the
// lock; what it returns may run on any thread without it.
Completion CompletionOf(py::handle future, std::string where, c10::TypePtr result = {});

}  // namespace gradwire::python
