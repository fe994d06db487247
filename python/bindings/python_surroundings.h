// What Python code runs inside of (gradwire/surroundings.h): a context variable says so, which follows tasks of asyncio
// as it follows threads. Where it has no value, what C++ has made current on the thread holds.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "gradwire/surroundings.h"

namespace gradwire::python {

namespace py = pybind11;

// Makes the variable's value current on this thread, as long as this lives. Made with the lock.
class ContextVariableScope {
 public:
  ContextVariableScope();

 private:
  std::optional<Surroundings::Scope> scope_;
};

// What holds for calls that Python code makes here. With the lock.
Surroundings PythonSurroundings();

// A new reference to a contextvars.Context without values, but for what C++ has made current on this thread. With the
// lock.
PyObject* NewPythonContext();

}  // namespace gradwire::python
