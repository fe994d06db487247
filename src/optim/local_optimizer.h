// LocalOptimizer: a libtorch optimizer over parameters of this worker, stepped with the gradients of a context.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/optim.h"
#include "gradwire/payload.h"

namespace torch::optim {
class Optimizer;
}

namespace gradwire::optim {

class LocalOptimizer final : public LocalObject {
 public:
  // Throws Error(kInvalid) for an unknown name or option.
  LocalOptimizer(const std::string& name, std::vector<at::Tensor> parameters, const Options& options);
  ~LocalOptimizer() override;

  // (leaf, gradient) as autograd gives them; those of other leaves are ignored. One step of this
  // process at a time.
  void Step(const std::vector<std::pair<at::Tensor, at::Tensor>>& gradients) const;

  Payload Encode() const override;  // throws: it stays where its parameters are

 private:
  const std::vector<at::Tensor> parameters_;
  const std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace gradwire::optim
