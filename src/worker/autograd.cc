// The functions of gradwire/autograd.h, on the Autograd of a worker.
#include "gradwire/autograd.h"

#include "autograd/autograd.h"
#include "gradwire/worker.h"

namespace gradwire::autograd {

Context::Context(Worker& worker)
    : worker_(worker), id_(worker.autograd().NewContext()), outer_(worker.autograd().SetCurrent(id_)) {}

Context::~Context() {
  Autograd& autograd = worker_.autograd();
  autograd.SetCurrent(autograd.Knows(outer_) ? outer_ : -1);
  autograd.Release(id_);
}

void backward(Worker& worker, int64_t context_id, const std::vector<at::Tensor>& roots, bool retain_graph) {
  worker.autograd().Backward(context_id, roots, retain_graph);
}

std::vector<std::pair<at::Tensor, at::Tensor>> get_gradients(Worker& worker, int64_t context_id) {
  return worker.autograd().Gradients(context_id);
}

int64_t current_context(Worker& worker) { return worker.autograd().current(); }

}  // namespace gradwire::autograd
