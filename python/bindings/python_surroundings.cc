#include "python_surroundings.h"

#include <string>
#include <utility>

#include "bindings.h"

namespace gradwire::python {
namespace {

// Never freed: any thread may ask for it until the end.
PyObject* Variable() {
  static PyObject* const variable = PyContextVar_New("gradwire_surroundings", nullptr);
  return variable;
}

py::object Value() {
  PyObject* value = nullptr;
  if (PyContextVar_Get(Variable(), Py_None, &value) < 0) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
}

}  // namespace

ContextVariableScope::ContextVariableScope() {
  const py::object value = Value();
  if (!value.is_none()) scope_.emplace(py::cast<const Surroundings&>(value));
}

Surroundings PythonSurroundings() {
  const ContextVariableScope scope;
  return Surroundings::current();
}

PyObject* NewPythonContext() {
  auto context = py::reinterpret_steal<py::object>(PyContext_New());
  if (!context) throw py::error_already_set();
  if (const Surroundings mine = Surroundings::current(); !mine.empty()) {
    if (PyContext_Enter(context.ptr()) < 0) throw py::error_already_set();
    const auto token = py::reinterpret_steal<py::object>(PyContextVar_Set(Variable(), py::cast(mine).ptr()));
    if (PyContext_Exit(context.ptr()) < 0 || !token) throw py::error_already_set();
  }
  return context.release().ptr();
}

void BindSurroundings(py::module_& module) {
  py::class_<Surroundings>(module, "Surroundings");
  module.attr("surroundings") = py::reinterpret_borrow<py::object>(Variable());
}

}  // namespace gradwire::python
