// Answers that come after their function has returned: of futures and of coroutines (C6). No thread waits for them.
#pragma once

#include <memory>

#include "gil.h"
#include "gradwire/call.h"

namespace gradwire::python {

// The function that functions.async_execution has marked by wrapping it in `function`, borrowed; nullptr if it is not
// marked. With the lock.
PyObject* AsynchronousFunction(PyObject* function);

// Takes over the answer to `call` when `result`, what its function has returned, is not its value yet: the future of a
// function that marked (an exception of Python for anything else), or a coroutine, which runs on the event
// loop. Otherwise false. `shown_as`: the function, for what is printed of its errors. With the lock.
bool AnswerLater(const std::shared_ptr<IncomingCall>& call, const py::object& result, bool asynchronous,
                 const std::string& shown_as);

}  // namespace gradwire::python
