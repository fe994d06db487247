#include "worker/layers.h"

#include <utility>

#include "ops/operators.h"
#include "optim/optimizers.h"

namespace gradwire {

void Layers::Build(rpc::Rpc::Options options) {
  const rpc::Peer& self = options.self;
  Functions& internal = *options.internal_functions;
  quiesce = std::make_unique<Quiesce>(internal);
  gather = std::make_unique<Gather>(internal);
  references = std::make_unique<rref::References>(self, internal);
  autograd = std::make_unique<autograd::Autograd>(self, internal);
  ops::RegisterOperators(internal);
  optim::RegisterFunctions(internal, [a = autograd.get()](ContextId context) { return a->Gradients(context); });
  options.interceptors.insert(options.interceptors.begin(), {autograd->interceptor(), references->interceptor()});
  options.on_peer_ended = [this, more = std::move(options.on_peer_ended)](const rpc::Peer& peer, const Failure& why) {
    quiesce->OnPeerEnded(peer.id.rank);
    gather->OnPeerEnded(peer);
    autograd->OnPeerEnded(peer, why);
    references->OnLost(peer, why);
    if (more) more(peer, why);
  };
  options.on_peer_drained = [this, more = std::move(options.on_peer_drained)](const rpc::Peer& peer) {
    autograd->OnPeerDrained(peer);
    references->OnDrained(peer);
    if (more) more(peer);
  };
  rpc = std::make_shared<rpc::Rpc>(std::move(options));
  gather->Attach(rpc.get());
  quiesce->Attach(rpc.get(), [this] { return uint64_t{references->counts().forks}; });
  references->Attach(rpc);
  autograd->Attach(rpc);
}

}  // namespace gradwire
