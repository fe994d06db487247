// A c10d store of Python for a worker.
#pragma once

#include <memory>

#include "gil.h"
#include "gradwire/store.h"

namespace gradwire::python {

// `store` is a torch.distributed.Store. With the lock.
std::shared_ptr<Store> StoreOf(py::handle store);

}  // namespace gradwire::python
