// Builtin operators such as torch.add: which overload a call means, and its arguments.
#pragma once

#include <optional>
#include <string>

#include "gil.h"
#include "gradwire/payload.h"

namespace gradwire::python {

struct OperatorCall {
  std::string function;  // "aten.add.Tensor"
  Payload args;
};

// Nothing when `function` is no builtin operator of torch. Raises when no overload takes these arguments, and for what
// cannot travel. With the lock.
std::optional<OperatorCall> EncodeOperator(PyObject* function, const py::tuple& args, const py::dict& kwargs);

}  // namespace gradwire::python
