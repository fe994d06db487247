// Layers: what a worker is made of on top of its transports. A Worker and the workers of simulations are built here.
#pragma once

#include <memory>

#include "autograd/autograd.h"
#include "rpc/rpc.h"
#include "rref/references.h"
#include "worker/gather.h"
#include "worker/quiesce.h"

namespace gradwire {

struct Layers {
  // Nothing listens yet. `options` say what differs from one worker to another; the layers add their functions to
  // internal_functions, and stand before what there is of interceptors and events.
  void Build(rpc::Rpc::Options options);

  // In the order of their construction; what stands above uses what stands before it.
  std::unique_ptr<Quiesce> quiesce;
  std::unique_ptr<Gather> gather;
  std::unique_ptr<rref::References> references;
  std::unique_ptr<autograd::Autograd> autograd;
  std::shared_ptr<rpc::Rpc> rpc;
};

}  // namespace gradwire
