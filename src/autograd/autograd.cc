#include "autograd/autograd.h"

#include "autograd/protocol.h"

namespace gradwire::autograd {
namespace {

std::shared_ptr<ContextState> Known(Protocol& protocol, ContextId id) {
  std::shared_ptr<ContextState> context = protocol.interceptor().table().Find(id);
  if (!context) throw Error(UnknownContext(id, protocol.interceptor().self().name));
  return context;
}

}  // namespace

Autograd::Autograd(const rpc::Peer& self, Functions& functions)
    : protocol_(std::make_shared<Protocol>(std::make_shared<AutogradInterceptor>(self))) {
  protocol_->Register(functions);
}

Autograd::~Autograd() = default;

std::shared_ptr<rpc::Interceptor> Autograd::interceptor() const { return protocol_->shared_interceptor(); }

void Autograd::Attach(std::shared_ptr<rpc::Rpc> rpc) { protocol_->Attach(CallsOver(std::move(rpc))); }

void Autograd::OnPeerEnded(const rpc::Peer& peer, const Failure& why) { protocol_->OnPeerEnded(peer.id, why); }
void Autograd::OnPeerDrained(const rpc::Peer& peer) { protocol_->OnPeerDrained(peer.id); }

void Autograd::Close(const Failure& why) { protocol_->Close(why); }

ContextId Autograd::NewContext() { return protocol_->interceptor().table().New()->id(); }

bool Autograd::Knows(ContextId context) const { return protocol_->interceptor().table().Find(context) != nullptr; }

bool Autograd::Release(ContextId context) { return protocol_->Release(context); }

ContextId Autograd::current() const {
  const auto context = protocol_->interceptor().current().get();
  return context ? context->id() : -1;
}

Surroundings Autograd::Inside(ContextId context) const {
  return protocol_->interceptor().current().With(context >= 0 ? Known(*protocol_, context) : nullptr);
}

void Autograd::Backward(ContextId context, const std::vector<at::Tensor>& roots, bool retain_graph) {
  protocol_->Backward(context, roots, retain_graph);
}

std::vector<std::pair<at::Tensor, at::Tensor>> Autograd::Gradients(ContextId context) const {
  std::vector<std::pair<at::Tensor, at::Tensor>> result;
  for (LeafGradient& entry : Known(*protocol_, context)->gradients()) {
    result.emplace_back(std::move(entry.leaf), std::move(entry.gradient));
  }
  return result;
}

void Autograd::set_describe(std::function<std::optional<Failure>(const std::exception_ptr&)> describe) {
  protocol_->set_describe(std::move(describe));
}

void Autograd::set_find_reduced(FindReduced find) { protocol_->set_find_reduced(std::move(find)); }

Autograd::Counts Autograd::counts() const {
  const ContextTable& table = protocol_->interceptor().table();
  return {.contexts = table.ids().size(), .tombstones = table.tombstones(), .passes = protocol_->passes()};
}

Autograd::Record Autograd::Inspect(ContextId id) const {
  struct Nodes {
    std::vector<std::pair<MessageId, SendPtr>> sends;
    std::vector<std::pair<MessageId, RecvPtr>> recvs;
  };
  const auto context = Known(*protocol_, id);
  auto nodes = std::make_shared<Nodes>(Nodes{context->sends(), context->recvs()});
  Record record;
  for (const auto& [message, node] : nodes->sends) record.sends.emplace_back(message, node.get());
  for (const auto& [message, node] : nodes->recvs) record.recvs.emplace_back(message, node.get());
  record.peers = context->peers();
  record.keep = std::move(nodes);
  return record;
}

ContextId Autograd::max_id() const { return protocol_->interceptor().table().max_id(); }

}  // namespace gradwire::autograd
