#include "operator_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradwire/operators.h"
#include "python_parts.h"

namespace gradwire::python {
namespace {

namespace jit = torch::jit;

// One overload, with the name of its function made once.
struct Overload {
  std::shared_ptr<jit::Operator> op;
  std::string function;
  c10::TypePtr result;
};

// What is known of one builtin function.
struct Builtin {
  std::vector<std::shared_ptr<jit::Operator>> all;
  // By the types of the arguments: which overload took them last time. Trying all of them costs tens of microseconds
  // when the first ones refuse, as they refuse by an exception.
  std::vector<std::pair<std::vector<PyObject*>, Overload>> by_types;

  static constexpr size_t kMostPatterns = 32;
};

// Containers are left out: overloads differ by what is in them.
bool HasContainer(const std::vector<PyObject*>& types) {
  for (PyObject* type : types) {
    if (PyType_Check(type) &&
        PyType_FastSubclass(reinterpret_cast<PyTypeObject*>(type),
                            Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS)) {
      return true;
    }
  }
  return false;
}

std::vector<PyObject*> TypesOf(const py::tuple& args, const py::dict& kwargs) {
  std::vector<PyObject*> types;
  types.reserve(args.size() + 2 * kwargs.size());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.ptr()); ++i) {
    types.push_back(reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(args.ptr(), i))));
  }
  for (const auto& [key, value] : kwargs) {
    types.push_back(key.ptr());  // interned in practice; another object only means another pattern
    types.push_back(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())));
  }
  return types;
}

// TorchScript has operators for functions of Python's own modules too (math.sqrt); those stay Python functions.
bool IsOperator(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  if (!self || !PyModule_Check(self)) return true;
  const char* name = PyModule_GetName(self);
  if (!name) PyErr_Clear();
  return name && std::string_view(name).rfind("torch", 0) == 0;
}

// The table entry of a builtin function; nullptr when it is no operator. Entries and their functions are kept for ever:
// torch has a fixed number of them.
Builtin* FindBuiltin(PyObject* function) {
  static auto* builtins = new std::unordered_map<PyObject*, std::unique_ptr<Builtin>>();
  if (auto it = builtins->find(function); it != builtins->end()) return it->second.get();
  if (!IsOperator(function)) return nullptr;
  const py::object symbol = Parts().find_builtin(py::handle(function));
  if (symbol.is_none()) return nullptr;
  const auto name = py::cast<std::string>(symbol);
  if (OperatorFunction(name, "").empty()) return nullptr;
  auto builtin = std::make_unique<Builtin>();
  builtin->all = jit::getAllSortedOperatorsFor(c10::Symbol::fromQualString(name));
  Py_INCREF(function);
  return builtins->emplace(function, std::move(builtin)).first->second.get();
}

bool IsTensor(PyObject* value) { return THPVariable_Check(value); }

// Among the arguments, or the items of those that are lists or tuples.
bool HasTensor(const py::tuple& args, const py::dict& kwargs) {
  const auto holds = [](const py::handle& value) {
    if (IsTensor(value.ptr())) return true;
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) return false;
    const auto items = py::reinterpret_borrow<py::sequence>(value);
    return std::any_of(items.begin(), items.end(), [](const py::handle& item) { return IsTensor(item.ptr()); });
  };
  return std::any_of(args.begin(), args.end(), holds) ||
         std::any_of(kwargs.begin(), kwargs.end(), [&](const auto& item) { return holds(item.second); });
}

// The overload that takes the arguments. Nothing when there is none and they may be for Python alone, which takes the
// size in torch.zeros(2, 3) and the list in torch.tensor([1.5]): what makes tensors from none.
std::optional<std::pair<std::shared_ptr<jit::Operator>, jit::Stack>> Match(const Builtin& builtin,
                                                                           const py::tuple& args,
                                                                           const py::dict& kwargs) {
  try {
    return jit::getOpWithStack(builtin.all, py::reinterpret_borrow<py::args>(args),
                               py::reinterpret_borrow<py::kwargs>(kwargs));
  } catch (const std::runtime_error&) {
    if (args.size() + kwargs.size() == 0 || HasTensor(args, kwargs)) throw;
    return std::nullopt;
  }
}

OperatorCall Encode(const Overload& overload, const jit::Stack& stack) {
  return {overload.function, EncodeOperatorArguments(stack), overload.result};
}

}  // namespace

c10::TypePtr ResultType(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return c10::NoneType::get();
  if (schema.returns().size() == 1) return schema.returns()[0].real_type();
  std::vector<c10::TypePtr> types;
  for (const c10::Argument& returned : schema.returns()) types.push_back(returned.real_type());
  return c10::TupleType::create(std::move(types));
}

std::optional<OperatorCall> EncodeOperator(PyObject* function, const py::tuple& args, const py::dict& kwargs) {
  if (!PyCFunction_CheckExact(function)) return std::nullopt;
  Builtin* const builtin = FindBuiltin(function);
  if (!builtin) return std::nullopt;

  const auto py_args = py::reinterpret_borrow<py::args>(args);
  const auto py_kwargs = py::reinterpret_borrow<py::kwargs>(kwargs);
  std::vector<PyObject*> types = TypesOf(args, kwargs);
  for (const auto& [pattern, overload] : builtin->by_types) {
    if (pattern != types) continue;
    try {
      return Encode(overload, jit::createStackForSchema(overload.op->schema(), py_args, py_kwargs, std::nullopt));
    } catch (const jit::schema_match_error&) {
      break;  // the same types, yet another overload (a number that is too large for this one)
    }
  }
  const auto match = Match(*builtin, args, kwargs);
  if (!match) return std::nullopt;
  const auto& [op, stack] = *match;
  const c10::OperatorName& name = op->schema().operator_name();
  Overload overload{op, OperatorFunction(name.name, name.overload_name), ResultType(op->schema())};
  OperatorCall call = Encode(overload, stack);
  if (builtin->by_types.size() < Builtin::kMostPatterns && !HasContainer(types)) {
    for (PyObject* type : types) Py_INCREF(type);
    builtin->by_types.emplace_back(std::move(types), std::move(overload));
  }
  return call;
}

}  // namespace gradwire::python
