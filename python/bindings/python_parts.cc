#include "python_parts.h"

namespace gradwire::python {

const PythonParts& Parts() {
  // Never freed: the interpreter may be gone before static objects are.
  static const PythonParts* parts = nullptr;
  if (!parts) {
    const auto pickling = py::module_::import("gradwire._pickling");
    const auto errors = py::module_::import("gradwire.errors");
    const auto functions = py::module_::import("gradwire._functions");
    parts = new PythonParts{
        .dumps = pickling.attr("dumps"),
        .loads = pickling.attr("loads"),
        .describe = errors.attr("describe"),
        .rebuild = errors.attr("rebuild"),
        .rebuild_of_pass = errors.attr("rebuild_of_pass"),
        .both = errors.attr("both"),
        .fresh = errors.attr("fresh"),
        .add_note = errors.attr("add_note"),
        .refusal = functions.attr("refusal"),
        .resolve = functions.attr("resolve"),
        .later = functions.attr("Later"),
        .start_coroutine = py::module_::import("gradwire._coroutines").attr("start"),
        .future_value = py::module_::import("torch._C").attr("Future").attr("wait"),
        .call_builtin = functions.attr("call_builtin"),
        .find_builtin = py::module_::import("torch.jit._builtins").attr("_find_builtin"),
        .find_reduced = py::module_::import("gradwire._reducers").attr("find_reduced"),
        .rref = py::module_::import("gradwire._rref").attr("RRef"),
    };
  }
  return *parts;
}

}  // namespace gradwire::python
