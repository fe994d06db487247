// Calls of TorchScript functions from Python, and their callee's side.
#pragma once

#include <optional>

#include "call_encoder.h"
#include "gradwire/function.h"

namespace gradwire::python {

// Nothing when `function` is no script function, marked by async_execution or not. Raises when its schema does not take
// these arguments, and for what cannot travel. With the lock.
std::optional<EncodedCall> EncodeScript(py::handle function, const py::tuple& args, const py::dict& kwargs);

// What a script has returned, as torch would give it to Python. With the lock.
py::object DecodeScriptResult(const Payload& payload, const c10::Type& type);

// Serves the script functions that Python programs of this process have compiled.
void ServeScriptFunctions(Functions& functions);

}  // namespace gradwire::python
