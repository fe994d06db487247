// The callee's side of calls of Python functions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gil.h"
#include "gradwire/function.h"
#include "gradwire/worker.h"

namespace gradwire::python {

// Answers a call with the object that `value` returns, or with the exception of Python that it throws; when the result
// stays here, with the very object. `shown_as`: the function, for what is printed of its errors. Takes the lock for
// `value`; to be called without it.
void AnswerWith(const std::shared_ptr<IncomingCall>& call, const std::function<py::object()>& value,
                const std::string& shown_as);

// What the workers of this process serve: the Python handler and what load_functions() has added. With the lock.
const std::shared_ptr<Functions>& ServedFunctions();

// Runs the Python function of a call, of kPythonFunction or of a registered name, and answers. On a pool thread.
void HandlePythonCall(const std::shared_ptr<IncomingCall>& call);

// Calls may come in as soon as others know this worker, which is before init_rpc has returned and functions find the
// worker. HoldCalls() keeps them until ServeCalls(); then they run on the pool.
void HoldCalls();
void ServeCalls();

// Adds what a library registers in its exported `extern "C" void gradwire_register(gradwire::Functions&)`.
void LoadFunctions(const std::string& path);

}  // namespace gradwire::python
