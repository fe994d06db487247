// The functions of gradwire/autograd.h, on the Autograd of a worker.
#include "gradwire/autograd.h"

#include "autograd/autograd.h"
#include "gradwire/worker.h"

namespace gradwire::autograd {

Context::Context(Worker& worker)
    : worker_(worker), id_(worker.autograd().NewContext()), scope_(worker.autograd().Inside(id_)) {}

Context::~Context() { worker_.autograd().Release(id_); }

Surroundings inside(Worker& worker, int64_t context_id) { return worker.autograd().Inside(context_id); }

void backward(Worker& worker, int64_t context_id, const std::vector<at::Tensor>& roots, bool retain_graph) {
  worker.autograd().Backward(context_id, roots, retain_graph);
}

std::vector<std::pair<at::Tensor, at::Tensor>> get_gradients(Worker& worker, int64_t context_id) {
  return worker.autograd().Gradients(context_id);
}

void set_find_reduced(Worker& worker, FindReduced find) { worker.autograd().set_find_reduced(std::move(find)); }

int64_t current_context(Worker& worker) { return worker.autograd().current(); }

int64_t new_context(Worker& worker) { return worker.autograd().NewContext(); }
int64_t max_context_id(Worker& worker) { return worker.autograd().max_id(); }
bool knows_context(Worker& worker, int64_t context_id) { return worker.autograd().Knows(context_id); }
bool release_context(Worker& worker, int64_t context_id) { return worker.autograd().Release(context_id); }

Recorded recorded(Worker& worker, int64_t context_id) {
  const Autograd::Record record = worker.autograd().Inspect(context_id);
  Recorded result;
  for (const auto& [message, node] : record.sends) result.sends.push_back(node);
  for (const auto& [message, node] : record.recvs) result.receives.push_back(node);
  for (const WorkerId& peer : record.peers) result.peers.push_back(peer.rank);
  result.keep = record.keep;
  return result;
}

}  // namespace gradwire::autograd
