// Reference: a remote reference as Python sees it, the base of gradwire.rpc.RRef.
#pragma once

#include <memory>
#include <string>

#include "gil.h"
#include "gradwire/rref.h"

namespace gradwire::python {

// The handle under a Python RRef; nullptr for any other object. With the lock.
std::shared_ptr<RRefHandle> HandleOf(PyObject* object);

// A new Python RRef, whose errors name the call `made_by` when one of this process makes its value. With the lock.
py::object MakeRRef(std::shared_ptr<RRefHandle> handle, std::string made_by = {});

}  // namespace gradwire::python
