// How a Python function travels: by module and qualified name when it can be found by them, else by pickle.
#pragma once

#include <optional>
#include <string>

#include "gil.h"

namespace gradwire::python {

struct FunctionName {
  py::object module;
  py::object qualified;  // "f" or "Class.f"
};

// Of functions, classes and builtins that their names lead back to, here and now. None for other callables. Throws
// the exception that says why for a function that no name leads to (a lambda). With the lock.
std::optional<FunctionName> NameOf(PyObject* function);

// What errors call a function that a call was given, whatever it is: "Counter.add", "torch.add". The package's own
// functions may say it by an attribute `_shown_as`: a text, or which of `args` is the name. With the
// lock. Raises nothing.
std::string ShownName(PyObject* function, PyObject* args);

// What the names lead to; the module is imported if need be. Throws Error(kUnknownFunction)
// when there is nothing, and what the import raises. With the lock.
py::object ResolveFunction(py::handle module, py::handle qualified);

}  // namespace gradwire::python
