// Builtin operators such as torch.add: which overload a call means, and its arguments.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <optional>
#include <string>

#include "gil.h"
#include "gradwire/payload.h"

namespace c10 {
struct FunctionSchema;
}

namespace gradwire::python {

struct OperatorCall {
  std::string function;  // "aten.add.Tensor"
  Payload args;
  c10::TypePtr result;
};

// What a call of this schema returns: the one value, or a tuple of several.
c10::TypePtr ResultType(const c10::FunctionSchema& schema);

// Nothing when `function` is no builtin operator of torch, and when only Python takes these arguments: torch.zeros(2).
// Throws when no overload takes them though there are tensors among them, or none at all, and for what cannot travel.
// With the lock.
std::optional<OperatorCall> EncodeOperator(PyObject* function, const py::tuple& args, const py::dict& kwargs);

}  // namespace gradwire::python
