// A Python call as a function of its callee and encoded arguments.
#pragma once

#include <ATen/core/jit_type_base.h>

#include <string>

#include "gil.h"
#include "gradwire/function.h"
#include "gradwire/payload.h"

namespace gradwire::python {

struct EncodedCall {
  std::string function;
  Payload args;
  c10::TypePtr result = {};  // of operators and script functions: what their schema says
  bool is_script = false;
};

// The arguments of kPythonFunction are one of
//   (function, args, kwargs)      plain values
//   (function, pickle)            the pickle of (args, kwargs)
//   pickle                        of (function, args, kwargs)
// where a function is the tuple (module, qualified name).

// `function` is a builtin operator, a script function, the name of a registered function, or any callable; `args` a
// tuple, a list or None, `kwargs` a dict or None. Raises at once for what cannot be sent. With the lock.
EncodedCall EncodeCall(py::handle function, py::handle args, py::handle kwargs);

// The call that a payload holds, on its callee. With the lock.
struct DecodedCall {
  py::object function;
  py::tuple args;
  py::dict kwargs;
};
DecodedCall DecodeCall(const Payload& payload);

}  // namespace gradwire::python
