// What the bindings call in the Python package, looked up once.
#pragma once

#include "gil.h"

namespace gradwire::python {

struct PythonParts {
  py::object dumps;     // _pickling.dumps(value, tensors before, references before) -> (bytes, tensors, references)
  py::object loads;     // _pickling.loads(bytes, tensors, references) -> value
  py::object describe;  // errors.describe(exception, heading) -> (text, type name, traceback, pickled)
  py::object rebuild;   // errors.rebuild(code, text, worker, type name, traceback, pickled) -> exception
  py::object rebuild_of_pass;  // the same for a failed backward pass
  py::object both;             // errors.both(exception, where) -> a RuntimeError that is of the exception's type too
  py::object fresh;            // errors.fresh(exception) -> a copy
  py::object add_note;         // errors.add_note(exception, note)
  py::object refusal;          // _functions.refusal(function) -> the exception that says why it cannot be sent
  py::object resolve;          // _functions.resolve(module, qualified name) -> (True, function) or (False, text)
  py::object later;            // class _functions.Later: a future whose value answers the call
  py::object start_coroutine;  // _coroutines.start(coroutine, context, call) -> future
  py::object future_value;     // torch's own way from a completed future to its value or exception
  py::object call_builtin;     // _functions.call_builtin(function, args, kwargs): from a frame of Python
  py::object find_builtin;     // torch's table: builtin function -> "aten::..." or None
  py::object find_reduced;     // _reducers.find_reduced(nodes, hooked) -> [(place among nodes or -1, leaves)]
  py::object rref;             // class RRef
};

// With the lock. Throws what the import raises.
const PythonParts& Parts();

}  // namespace gradwire::python
