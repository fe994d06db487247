#include "script_call.h"

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/python/python_ivalue.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "gradwire/ivalue.h"
#include "gradwire/script.h"
#include "later_answer.h"
#include "operator_call.h"
#include "python_handler.h"

namespace gradwire::python {
namespace {

namespace jit = torch::jit;

bool IsScriptFunction(py::handle object) {
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(py::type::of<jit::StrongFunctionPtr>().ptr());
  return Py_TYPE(object.ptr()) == type;
}

void AddModule(const std::string& name, const py::object& module) {
  const py::object inner = py::getattr(module, "_c", py::none());
  if (!py::isinstance<jit::Module>(inner)) throw py::type_error("only a script module has methods to serve");
  AddScriptModule(*ServedFunctions(), name, py::cast<jit::Module&>(inner));
}

}  // namespace

std::optional<EncodedCall> EncodeScript(py::handle function, const py::tuple& args, const py::dict& kwargs) {
  py::handle script = function;
  PyObject* const marked = AsynchronousFunction(function.ptr());
  if (marked) script = marked;
  if (!IsScriptFunction(script)) return std::nullopt;
  const jit::Function& found = *py::cast<jit::StrongFunctionPtr&>(script).function_;
  const c10::FunctionSchema& schema = found.getSchema();
  jit::Stack stack = jit::createStackForSchema(schema, py::reinterpret_borrow<py::args>(args),
                                               py::reinterpret_borrow<py::kwargs>(kwargs), std::nullopt);
  const std::string name = found.qualname().qualifiedName();
  c10::TypePtr result = ResultType(schema);
  if (marked && result->kind() == c10::TypeKind::FutureType) {
    result = result->expectRef<c10::FutureType>().getElementType();
  }
  return EncodedCall{marked ? AsyncScriptFunction(name) : ScriptFunction(name),
                     EncodeIValue(c10::ivalue::Tuple::create(std::move(stack))), std::move(result), true};
}

py::object DecodeScriptResult(const Payload& payload, const c10::Type& type) {
  return jit::toPyObject(DecodeIValue(payload, type));
}

void ServeScriptFunctions(Functions& functions) {
  AddScriptFunctions(functions, [](const std::string& name) -> jit::Function* {
    if (!InterpreterLives()) return nullptr;
    const Locked locked;  // others may be compiling
    return jit::get_python_cu()->find_function(c10::QualifiedName(name));
  });
}

void BindScript(py::module_& module) { module.def("add_script_module", AddModule, py::arg("name"), py::arg("module")); }

}  // namespace gradwire::python
