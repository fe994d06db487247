// Distributed autograd: contexts, backward passes, gradients.
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>
#include <vector>

#include "gradwire/autograd.h"
#include "python_errors.h"
#include "python_parts.h"
#include "python_worker.h"

namespace gradwire::python {
namespace {

// A context until close(), current nowhere by itself.
class PythonContext {
 public:
  explicit PythonContext(PythonWorker& worker)
      : worker_(worker.shared()), id_(autograd::new_context(worker.worker())) {}
  ~PythonContext() { Close(); }

  int64_t id() const { return id_; }
  void Close() {
    if (id_ < 0) return;
    const int64_t id = std::exchange(id_, -1);
    if (process_.is_inherited()) {
      new std::shared_ptr<Worker>(worker_);  // never freed
      return;                                // a release would send messages
    }
    const py::gil_scoped_release unlocked;
    autograd::release_context(*worker_, id);
  }

 private:
  const std::shared_ptr<Worker> worker_;
  int64_t id_;
  const OfProcess process_;
};

void Backward(PythonWorker& worker, int64_t context_id, const std::vector<at::Tensor>& roots, bool retain_graph) {
  const auto alive = worker.shared();
  try {
    WithoutLock([&] { autograd::backward(*alive, context_id, roots, retain_graph); });
  } catch (const Error& error) {
    RaisePassFailure(error.failure());
  }
}

using Nodes = std::vector<torch::autograd::Node*>;

std::vector<autograd::Reduced> FindReduced(const Nodes& nodes, const std::vector<at::Tensor>& hooked) {
  if (!InterpreterLives()) return {};
  const Locked locked;
  py::list objects;
  for (torch::autograd::Node* const node : nodes) {
    objects.append(py::handle(static_cast<torch::autograd::PyNode*>(node)->pyobj()));
  }
  std::vector<autograd::Reduced> all;
  for (const py::handle group : Parts().find_reduced(objects, hooked)) {
    const auto [place, leaves] = py::cast<std::pair<int64_t, std::vector<at::Tensor>>>(group);
    all.push_back({place < 0 ? nullptr : nodes.at(static_cast<size_t>(place)), leaves});
  }
  return all;
}

py::dict Gradients(PythonWorker& worker, int64_t context_id) {
  py::dict gradients;
  // The very tensor objects: a tensor of C++ finds its Python object again.
  for (const auto& [leaf, gradient] : autograd::get_gradients(worker.worker(), context_id)) {
    gradients[py::cast(leaf)] = py::cast(gradient);
  }
  return gradients;
}

}  // namespace

void KnowReducers(Worker& worker) { autograd::set_find_reduced(worker, FindReduced); }

void BindAutograd(py::module_& module) {
  py::class_<PythonContext>(module, "AutogradContext")
      .def(py::init<PythonWorker&>(), py::arg("worker"))
      .def("id", &PythonContext::id)
      .def("close", &PythonContext::Close);
  const auto worker = py::arg("worker");
  const auto context_id = py::arg("context_id");
  const auto retain_graph = py::arg("retain_graph") = false;
  module.def(
      "backward",
      [](PythonWorker& worker, int64_t context_id, const at::Tensor& root, bool retain_graph) {
        Backward(worker, context_id, {root}, retain_graph);
      },
      worker, context_id, py::arg("root").none(false), retain_graph);
  module.def("backward", Backward, worker, context_id, py::arg("roots"), retain_graph);
  module.def("get_gradients", Gradients, worker, context_id);
  module.def(
      "current_context",
      [](PythonWorker& self) {
        const ContextVariableScope inside;
        return autograd::current_context(self.worker());
      },
      worker);
  module.def(
      "inside",
      [](PythonWorker& self, int64_t id) {
        const ContextVariableScope inside;
        return autograd::inside(self.worker(), id);
      },
      worker, context_id);
}

}  // namespace gradwire::python
