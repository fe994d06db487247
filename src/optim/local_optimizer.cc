#include "optim/local_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <mutex>
#include <unordered_map>

#include "gradwire/error.h"

namespace gradwire::optim {
namespace {

// Takes options out of the map by name; what is left at the end was misspelt.
class Reader {
 public:
  Reader(const std::string& optimizer, const Options& options) : optimizer_(optimizer), left_(options) {}

  double Take(const char* name, double otherwise) {
    auto it = left_.find(name);
    if (it == left_.end()) return otherwise;
    const double value = it->second;
    left_.erase(it);
    return value;
  }
  double Need(const char* name) {
    if (left_.count(name) == 0) missing_ = name;
    return Take(name, 0);
  }
  // A misspelt option is told with the one that it may have been meant for.
  void Check() const {
    std::string text;
    if (!left_.empty()) text = " has no option '" + left_.begin()->first + "'";
    if (!missing_.empty()) text += (text.empty() ? " needs the option '" : ", and needs '") + missing_ + "'";
    if (!text.empty()) throw Error(ErrorCode::kInvalid, "optimizer " + optimizer_ + text);
  }

 private:
  const std::string& optimizer_;
  Options left_;
  std::string missing_;
};

template <class AdamOptions>
AdamOptions ReadAdam(Reader& read, double weight_decay) {
  const double beta1 = read.Take("beta1", 0.9), beta2 = read.Take("beta2", 0.999);
  return AdamOptions(read.Take("lr", 1e-3))
      .betas({beta1, beta2})
      .eps(read.Take("eps", 1e-8))
      .weight_decay(read.Take("weight_decay", weight_decay))
      .amsgrad(read.Take("amsgrad", 0) != 0);
}

std::unique_ptr<torch::optim::Optimizer> Make(const std::string& name, const std::vector<at::Tensor>& parameters,
                                              const Options& options) {
  namespace to = torch::optim;
  Reader read(name, options);
  std::unique_ptr<to::Optimizer> made;
  if (name == "SGD") {
    made = std::make_unique<to::SGD>(parameters, to::SGDOptions(read.Need("lr"))
                                                     .momentum(read.Take("momentum", 0))
                                                     .dampening(read.Take("dampening", 0))
                                                     .weight_decay(read.Take("weight_decay", 0))
                                                     .nesterov(read.Take("nesterov", 0) != 0));
  } else if (name == "Adam") {
    made = std::make_unique<to::Adam>(parameters, ReadAdam<to::AdamOptions>(read, 0));
  } else if (name == "AdamW") {
    made = std::make_unique<to::AdamW>(parameters, ReadAdam<to::AdamWOptions>(read, 1e-2));
  } else if (name == "Adagrad") {
    made = std::make_unique<to::Adagrad>(parameters, to::AdagradOptions(read.Take("lr", 1e-2))
                                                         .lr_decay(read.Take("lr_decay", 0))
                                                         .weight_decay(read.Take("weight_decay", 0))
                                                         .eps(read.Take("eps", 1e-10)));
  } else if (name == "RMSprop") {
    made = std::make_unique<to::RMSprop>(parameters, to::RMSpropOptions(read.Take("lr", 1e-2))
                                                         .alpha(read.Take("alpha", 0.99))
                                                         .eps(read.Take("eps", 1e-8))
                                                         .weight_decay(read.Take("weight_decay", 0))
                                                         .momentum(read.Take("momentum", 0))
                                                         .centered(read.Take("centered", 0) != 0));
  } else {
    throw Error(ErrorCode::kInvalid,
                "there is no optimizer named '" + name + "' (known: SGD, Adam, AdamW, Adagrad, RMSprop)");
  }
  read.Check();
  return made;
}

// Optimizers of several workers may have the same parameters, whose `.grad` a step borrows: one step of this process at
// a time, whoever's it is.
std::mutex& StepMutex() {
  static auto* const mutex = new std::mutex;  // leaked: handlers may outlive the statics
  return *mutex;
}

}  // namespace

LocalOptimizer::LocalOptimizer(const std::string& name, std::vector<at::Tensor> parameters, const Options& options)
    : parameters_(std::move(parameters)), optimizer_(Make(name, parameters_, options)) {}

LocalOptimizer::~LocalOptimizer() = default;

void LocalOptimizer::Step(const std::vector<std::pair<at::Tensor, at::Tensor>>& gradients) const {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> by_leaf;
  for (const auto& [leaf, gradient] : gradients) by_leaf[leaf.unsafeGetTensorImpl()] = gradient;
  std::lock_guard lock(StepMutex());
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : parameters_) {
    before.push_back(parameter.grad());
    const auto it = by_leaf.find(parameter.unsafeGetTensorImpl());
    parameter.mutable_grad() = it == by_leaf.end() ? at::Tensor() : it->second;
  }
  const auto restore = [&] {
    for (size_t i = parameters_.size(); i-- > 0;) parameters_[i].mutable_grad() = before[i];  // one may be there twice
  };
  try {
    optimizer_->step();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

Payload LocalOptimizer::Encode() const {
  throw Error(ErrorCode::kInvalid, "an optimizer stays with its parameters: step it through DistributedOptimizer");
}

}  // namespace gradwire::optim
