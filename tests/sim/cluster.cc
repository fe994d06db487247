#include "sim/cluster.h"

namespace gradwire::sim {

Cluster::Cluster(uint64_t seed, int workers, std::shared_ptr<Faults> faults, const rpc::Interceptors& more)
    : scheduler_(std::make_shared<SimScheduler>(seed)) {
  std::vector<rpc::Member> members;
  for (int rank = 0; rank < workers; ++rank) {
    auto node = std::make_unique<Node>();
    const rpc::Peer self{.id = {static_cast<uint32_t>(rank), static_cast<uint32_t>(100 + rank)},
                         .name = "worker" + std::to_string(rank)};
    node->functions = std::make_shared<Functions>();
    auto internal = node->internal = std::make_shared<Functions>();
    node->transport = std::make_shared<transport::InprocTransport>(network_, scheduler_);
    rpc::Rpc::Options options;
    options.self = self;
    options.job_key = "simulation";
    options.clock = scheduler_;
    options.executor = scheduler_;
    options.transports = {node->transport};
    options.faults = faults;
    options.functions = node->functions;
    options.internal_functions = internal;
    options.interceptors = more;
    node->Build(std::move(options));
    node->address = node->rpc->Listen()[0];
    members.push_back({.peer = self, .addresses = {node->address}});
    nodes_.push_back(std::move(node));
  }
  for (auto& node : nodes_) {
    for (const rpc::Member& member : members) node->rpc->members().Add(member);
  }
}

Cluster::~Cluster() {
  for (auto& node : nodes_) node->rpc->Stop("the simulation has ended");
  for (auto& node : nodes_) {
    node->references->Close({.code = ErrorCode::kDisconnected, .text = "the simulation has ended"});
    node->transport->Stop();
  }
  scheduler_->RunReady();
  scheduler_->DropTimers();
}

Outcome Cluster::CallOutcome(size_t from, size_t to, const std::string& function, Payload args, CallOptions options) {
  rpc::Call call;
  call.to = id(to);
  call.function = function;
  call.args = std::move(args);
  call.options = options;
  return rpc(from).SendAndWait(std::move(call));
}

std::shared_ptr<RRefHandle> Cluster::Remote(size_t from, size_t to, const std::string& function, Payload args) {
  return nodes_[from]->references->Remote(rpc(to).self(), function, std::move(args), {});
}

}  // namespace gradwire::sim
