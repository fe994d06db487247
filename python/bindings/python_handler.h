// The callee's side of calls of Python functions.
#pragma once

#include <memory>
#include <string>

#include "gil.h"
#include "gradwire/function.h"
#include "gradwire/worker.h"

namespace gradwire::python {

// What the workers of this process serve: the Python handler and what load_functions() has added. With the lock.
const std::shared_ptr<Functions>& ServedFunctions();

// Calls may come in as soon as others know this worker, which is before init_rpc has returned and functions find the
// worker. HoldCalls() keeps them until ServeCalls(); then they run on `worker`'s pool.
void HoldCalls();
void ServeCalls(Worker& worker);

// Adds what a library registers in its exported `extern "C" void gradwire_register(gradwire::Functions&)`.
void LoadFunctions(const std::string& path);

}  // namespace gradwire::python
