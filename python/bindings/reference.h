// Reference: a remote reference as Python sees it, the base of gradwire.rpc.RRef.
#pragma once

#include <memory>

#include "gil.h"
#include "gradwire/rref.h"

namespace gradwire::python {

// The handle under a Python RRef; nullptr for any other object. With the lock.
std::shared_ptr<RRefHandle> HandleOf(PyObject* object);

// A new Python RRef. With the lock.
py::object MakeRRef(std::shared_ptr<RRefHandle> handle);

}  // namespace gradwire::python
