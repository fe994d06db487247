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

// As UTF-8; "?" for what UTF-8 cannot carry.
std::string Text(PyObject* text) {
  const char* bytes = PyUnicode_AsUTF8(text);
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "?";
}

// What a function of the package says of itself; empty for all others.
std::string OwnWord(PyObject* function, PyObject* args) {
  static PyObject* const key = PyUnicode_InternFromString("_shown_as");
  PyObject* const attributes = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  PyObject* word = attributes ? PyDict_GetItemWithError(attributes, key) : nullptr;
  if (word && PyLong_Check(word) && PyTuple_Check(args)) {
    const Py_ssize_t index = PyLong_AsSsize_t(word);
    word = index >= 0 && index < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, index) : nullptr;
  }
  return word && PyUnicode_Check(word) ? Text(word) : std::string();
}

}  // namespace

std::string ShownName(PyObject* function, PyObject* args) {
  if (PyUnicode_Check(function)) return Text(function);
  if (PyFunction_Check(function)) {
    std::string word = OwnWord(function, args);
    return word.empty() ? Text(reinterpret_cast<PyFunctionObject*>(function)->func_qualname) : word;
  }
  if (PyCFunction_Check(function)) {
    // torch keeps its functions in a class that no program knows, as static ones: those have a self of their own.
    const auto* parts = reinterpret_cast<PyCFunctionObject*>(function);
    PyObject* const self = parts->m_self;
    const std::string name = parts->m_ml->ml_name;
    if (!self || PyModule_Check(self)) return name;
    const std::string of = (PyType_Check(self) ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self))->tp_name;
    return of.rfind("_VariableFunctionsClass") != std::string::npos ? "torch." + name : of + "." + name;
  }
  if (!PyCallable_Check(function)) return std::string("a value of type ") + Py_TYPE(function)->tp_name;
  for (const char* attribute : {"qualified_name", "__qualname__"}) {  // the first of script functions
    const py::object name = Attribute(function, attribute);
    if (name && PyUnicode_Check(name.ptr())) return Text(name.ptr());
  }
  return Py_TYPE(function)->tp_name;
}

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
