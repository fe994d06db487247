#include "function_name.h"

#include <string>
#include <utility>

#include "python_parts.h"

namespace gradwire::python {
namespace {

// The attribute, or nothing and no error.
py::object Attribute(py::handle object, const char* name) {
  PyObject* found = PyObject_GetAttrString(object.ptr(), name);
  if (!found) PyErr_Clear();
  return py::reinterpret_steal<py::object>(found);
}

// What the name leads to in a module that is imported already; empty when there is nothing.
py::object Find(PyObject* module_name, PyObject* qualified) {
  PyObject* module = PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
  if (!module) return {};
  const Py_ssize_t size = PyUnicode_GET_LENGTH(qualified);
  if (PyUnicode_FindChar(qualified, '.', 0, size, 1) < 0) {
    PyObject* found = PyObject_GetAttr(module, qualified);
    if (!found) PyErr_Clear();
    return py::reinterpret_steal<py::object>(found);
  }
  py::object at = py::reinterpret_borrow<py::object>(module);
  for (const py::handle part : py::reinterpret_steal<py::object>(PyUnicode_Split(qualified, py::str(".").ptr(), -1))) {
    at = py::reinterpret_steal<py::object>(PyObject_GetAttr(at.ptr(), part.ptr()));
    if (!at) {
      PyErr_Clear();
      return {};
    }
  }
  return at;
}

}  // namespace

std::optional<FunctionName> NameOf(PyObject* function) {
  py::object module;
  py::object qualified;
  if (PyFunction_Check(function)) {
    const auto* parts = reinterpret_cast<PyFunctionObject*>(function);
    module = py::reinterpret_borrow<py::object>(parts->func_module);
    qualified = py::reinterpret_borrow<py::object>(parts->func_qualname);
  } else if (PyType_Check(function) || (PyCFunction_Check(function) && PyCFunction_GET_SELF(function) &&
                                        PyModule_Check(PyCFunction_GET_SELF(function)))) {
    module = Attribute(function, "__module__");
    qualified = Attribute(function, "__qualname__");
  } else {
    return std::nullopt;
  }
  if (module && qualified && PyUnicode_Check(module.ptr()) && PyUnicode_Check(qualified.ptr()) &&
      Find(module.ptr(), qualified.ptr()).ptr() == function) {
    return FunctionName{std::move(module), std::move(qualified)};
  }
  if (!PyFunction_Check(function)) return std::nullopt;  // pickle may know better, and says so if not
  const py::object refusal = Parts().refusal(py::handle(function));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(refusal.ptr())), refusal.ptr());
  throw py::error_already_set();
}

py::object ResolveFunction(py::handle module, py::handle qualified) {
  if (PyUnicode_Check(module.ptr()) && PyUnicode_Check(qualified.ptr())) {
    if (py::object found = Find(module.ptr(), qualified.ptr())) return found;
  }
  const py::tuple found = Parts().resolve(module, qualified);
  if (py::cast<bool>(found[0])) return found[1];
  throw Error(ErrorCode::kUnknownFunction, py::cast<std::string>(found[1]));
}

}  // namespace gradwire::python
