// Autograd contexts one by one: made, looked into, released. What compat stands on.
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <vector>

#include "gradwire/autograd.h"
#include "python_worker.h"

namespace gradwire::python {
namespace {

using Nodes = std::vector<torch::autograd::Node*>;

// In the order of their creation, numbered from 0.
py::dict Numbered(const Nodes& nodes) {
  py::dict numbered;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto node = c10::intrusive_ptr<torch::autograd::Node>::reclaim_copy(nodes[i]);
    numbered[py::int_(i)] = py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node));
  }
  return numbered;
}

// (send nodes, receive nodes, ranks that calls of the context went to)
py::tuple Inspect(PythonWorker& worker, int64_t context_id) {
  const autograd::Recorded recorded = autograd::recorded(worker.worker(), context_id);
  py::set peers;
  for (const int64_t rank : recorded.peers) peers.add(py::int_(rank));
  return py::make_tuple(Numbered(recorded.sends), Numbered(recorded.receives), peers);
}

}  // namespace

void BindContext(py::module_& module) {
  const auto worker = py::arg("worker");
  const auto context_id = py::arg("context_id");
  module.def(
      "new_context", [](PythonWorker& self) { return autograd::new_context(self.worker()); }, worker);
  module.def(
      "max_context_id", [](PythonWorker& self) { return autograd::max_context_id(self.worker()); }, worker);
  module.def(
      "knows_context", [](PythonWorker& self, int64_t id) { return autograd::knows_context(self.worker(), id); },
      worker, context_id);
  module.def(
      "release_context",
      [](PythonWorker& self, int64_t id) {
        Worker& owner = self.worker();
        return WithoutLock([&] { return autograd::release_context(owner, id); });
      },
      worker, context_id);
  module.def("inspect_context", Inspect, worker, context_id);
}

}  // namespace gradwire::python
