// Cluster: several workers' calls, references and gradients in one thread, over a simulated network. One seed, one run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/sim_scheduler.h"
#include "transport/inproc/inproc_transport.h"
#include "worker/layers.h"

namespace gradwire::sim {

class Cluster {
 public:
  // The faults and the interceptors are the same for all.
  Cluster(uint64_t seed, int workers, std::shared_ptr<Faults> faults = nullptr, const rpc::Interceptors& more = {});
  ~Cluster();

  struct Node : Layers {
    std::shared_ptr<Functions> functions, internal;
    std::shared_ptr<transport::InprocTransport> transport;
    std::string address;
  };

  Node& operator[](size_t rank) { return *nodes_[rank]; }
  rpc::Rpc& rpc(size_t rank) { return *nodes_[rank]->rpc; }
  autograd::Autograd& autograd(size_t rank) { return *nodes_[rank]->autograd; }
  WorkerId id(size_t rank) { return nodes_[rank]->rpc->self().id; }
  SimScheduler& scheduler() { return *scheduler_; }
  transport::InprocNetwork& network() { return network_; }

  // The result of a call, run to its end.
  template <class R, class... A>
  R Call(size_t from, size_t to, const std::string& function, A... args) {
    Outcome outcome = CallOutcome(from, to, function, EncodeValue(std::tuple<A...>(std::move(args)...)));
    return DecodeValue<R>(outcome.value());
  }
  Outcome CallOutcome(size_t from, size_t to, const std::string& function, Payload args, CallOptions options = {});
  std::shared_ptr<RRefHandle> Remote(size_t from, size_t to, const std::string& function, Payload args);

 private:
  std::shared_ptr<SimScheduler> scheduler_;
  transport::InprocNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace gradwire::sim
