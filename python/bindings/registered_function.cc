#include "registered_function.h"

#include <unordered_map>
#include <utility>

#include "python_handler.h"
#include "value_decoder.h"
#include "value_encoder.h"

namespace gradwire::python {
namespace {

// Guarded by the lock. Never freed: calls may come until the process ends.
std::unordered_map<std::string, py::object>& Registered() {
  static auto* functions = new std::unordered_map<std::string, py::object>();
  return *functions;
}

}  // namespace

void RegisterFunction(const std::string& name, py::object function) {
  if (!PyCallable_Check(function.ptr())) {
    throw py::type_error("cannot register " + std::string(py::repr(function)) + ": it is not callable");
  }
  ServedFunctions()->AddHandler(name, HandlePythonCall);
  Registered()[name] = std::move(function);
}

void UnregisterFunction(const std::string& name) {
  const auto found = Registered().find(name);
  if (found == Registered().end()) {
    throw Error(ErrorCode::kInvalid, "no function of Python is registered as '" + name + "'");
  }
  ServedFunctions()->Remove(name);
  const py::object function = std::move(found->second);  // its destructor may run Python: after the erase
  Registered().erase(found);
}

DecodedCall DecodeRegisteredCall(IncomingCall& call) {
  const auto found = Registered().find(call.function());
  if (found == Registered().end()) {
    throw Error(ErrorCode::kUnknownFunction, "'" + call.function() + "' is no longer registered");
  }
  const py::object args = DecodePython(call.args());
  if (!PyTuple_Check(args.ptr())) {
    throw Error(ErrorCode::kInvalid, "the arguments of '" + call.function() + "' are not a tuple");
  }
  return {found->second, py::reinterpret_borrow<py::tuple>(args), py::dict()};
}

Payload EncodeRegisteredResult(IncomingCall& call, py::handle result) {
  Payload payload;
  if (!ValueEncoder(payload).TryPut(result.ptr())) {
    PyErr_Format(PyExc_TypeError,
                 "the registered function '%s' has returned a value of type %s, or one that holds such: only plain "
                 "values can be read in every language",
                 call.function().c_str(), Py_TYPE(result.ptr())->tp_name);
    throw py::error_already_set();
  }
  return payload;
}

}  // namespace gradwire::python
