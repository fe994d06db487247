// The end of a call as the end of a Python future.
#pragma once

#include "gil.h"
#include "gradwire/call.h"

namespace gradwire::python {

// Completes `future` (a torch.futures.Future) with the outcome's value or error. With the lock; what it returns may run
// on any thread without it.
Completion CompletionOf(py::handle future);

}  // namespace gradwire::python
