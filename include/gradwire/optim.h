// DistributedOptimizer: one local optimizer on each worker that owns parameters, stepped together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gradwire/export.h"
#include "gradwire/rref.h"

namespace gradwire {

class Worker;

namespace optim {

// Options of a libtorch optimizer by their own names ("lr", "momentum", "weight_decay", "beta1"); flags are 0 or 1.
using Options = std::map<std::string, double>;

class GRADWIRE_API DistributedOptimizer {
 public:
  // Optimizers do not cross languages: all owners are C++ workers.
  // `optimizer` is "SGD", "Adam", "AdamW", "Adagrad" or "RMSprop". Makes one on each owner of `parameters`; waits for
  // them all. Throws Error(kInvalid) for an unknown optimizer or option, and what went wrong on an owner. `worker` must
  // outlive it.
  DistributedOptimizer(Worker& worker, const std::string& optimizer, const std::vector<RRef<at::Tensor>>& parameters,
                       const Options& options);

  // Steps all of them with the gradients of a context, and waits for them all; then throws the first Error, when there
  // is one. Parameters without a gradient there are left as they are; `.grad` is used during the step only. Steps on
  // one owner come one after another, those of other workers' optimizers too: they may have the same parameters. Any
  // thread.
  void step(int64_t context_id);

 private:
  Worker& worker_;
  struct Part {
    std::string owner;
    std::shared_ptr<RRefHandle> optimizer;
  };
  std::vector<Part> parts_;
};

}  // namespace optim
}  // namespace gradwire
