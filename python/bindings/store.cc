#include "store.h"

#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "gradwire/c10d_store.h"
#include "python_worker.h"

namespace gradwire::python {

std::shared_ptr<Store> StoreOf(py::handle store) {
  // By pointer: the count is inside the store, whichever holder Python has.
  auto* const pointer = py::cast<c10d::Store*>(store);
  return WrapStore(c10::intrusive_ptr<c10d::Store>::reclaim_copy(pointer));
}

void BindStore(py::module_& module) {
  module.def(
      "open_tcp_store",
      [](const std::string& host, uint16_t port, int rank, double limit) {
        return WithoutLock([&] { return OpenTcpStore(host, port, rank, ToMilliseconds(limit)); });
      },
      py::arg("host"), py::arg("port"), py::arg("rank"), py::arg("limit"));
}

}  // namespace gradwire::python
