// Gradients and optimizers over three real workers of one process, joined by TCP, through the public interface alone.
#include "gradwire/optim.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <thread>

#include "gradwire/autograd.h"
#include "gradwire/worker.h"

namespace gradwire {
namespace {

constexpr size_t kWorkers = 3;
using Layers = std::array<std::vector<at::Tensor>, kWorkers>;  // each: weight, bias, one that takes no part

Layers NewLayers(at::ScalarType type) {
  Layers layers;
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    const at::Tensor weight = at::linspace(-0.7, 0.9, 16, type).view({4, 4}).roll(static_cast<int64_t>(rank));
    for (const at::Tensor& value : {weight, at::linspace(0, 0.3, 4, type), at::ones({2}, type)}) {
      layers[rank].push_back(value.clone().set_requires_grad(true));
    }
  }
  return layers;
}

at::Tensor Apply(const std::vector<at::Tensor>& layer, const at::Tensor& h) {
  return at::tanh(at::addmm(layer[1], h, layer[0]));
}

// Each worker owns a layer; a call of "forward" runs through its own and those after it.
class Group {
 public:
  explicit Group(at::ScalarType type, const std::shared_ptr<Faults>& faults_of_last = nullptr)
      : layers(NewLayers(type)) {
    static int groups = 0;
    const std::string store = testing::TempDir() + "optim_" + std::to_string(getpid()) + "_" + std::to_string(groups++);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kWorkers; ++rank) {
      threads.emplace_back([this, store, rank, faults_of_last] {
        auto functions = std::make_shared<Functions>();
        functions->Add("forward", [this, rank](at::Tensor h) { return Forward(rank, h); });
        functions->Add("parameter", [this, rank](int64_t index) { return layers[rank].at(index); });
        workers[rank] =
            std::make_unique<Worker>(WorkerOptions{.name = "worker" + std::to_string(rank),
                                                   .rank = static_cast<int>(rank),
                                                   .world_size = kWorkers,
                                                   .init_method = "file://" + store,
                                                   .faults = rank + 1 == kWorkers ? faults_of_last : nullptr,
                                                   .functions = functions});
      });
    }
    for (auto& thread : threads) thread.join();
    unlink(store.c_str());
  }
  ~Group() {
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&] { worker->shutdown(); });
    for (auto& thread : threads) thread.join();
  }

  at::Tensor Forward(size_t rank, const at::Tensor& h) {
    const at::Tensor own = Apply(layers[rank], h);
    if (rank + 1 == kWorkers) return own;
    return workers[rank]->rpc_sync<at::Tensor>("worker" + std::to_string(rank + 1), "forward",
                                               std::tuple<at::Tensor>(own));
  }
  std::vector<RRef<at::Tensor>> References() {
    std::vector<RRef<at::Tensor>> references;
    for (size_t rank = 0; rank < kWorkers; ++rank) {
      for (int64_t index = 0; index < 3; ++index) {
        references.push_back(
            workers[0]->remote<at::Tensor>("worker" + std::to_string(rank), "parameter", std::tuple<int64_t>(index)));
      }
    }
    return references;
  }

  Layers layers;
  std::array<std::unique_ptr<Worker>, kWorkers> workers;
};

using MakeLocal = std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

at::Tensor Batch(int step, at::ScalarType type) { return at::linspace(-1, 1 + 0.1 * step, 32, type).view({8, 4}); }

void ExpectTenEqualSteps(at::ScalarType type, double limit, const std::string& name, const optim::Options& options,
                         const MakeLocal& make_local) {
  Group group(type);
  Layers layers = NewLayers(type);
  std::vector<at::Tensor> all;
  for (const auto& layer : layers) all.insert(all.end(), layer.begin(), layer.end());
  const auto local = make_local(all);
  optim::DistributedOptimizer distributed(*group.workers[0], name, group.References(), options);
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x = Batch(step, type);
    local->zero_grad();
    at::Tensor h = x;
    for (const auto& layer : layers) h = Apply(layer, h);
    torch::autograd::backward({h.square().mean()}, {});
    local->step();

    const autograd::Context context(*group.workers[0]);
    autograd::backward(*group.workers[0], context.id(), {group.Forward(0, x).square().mean()});
    distributed.step(context.id());
  }
  const Layers begin = NewLayers(type);
  for (size_t rank = 0; rank < kWorkers; ++rank) {
    for (size_t index = 0; index < 3; ++index) {
      const at::Tensor there = group.layers[rank][index].detach();
      EXPECT_LE((there - layers[rank][index]).abs().max().item<double>(), limit) << rank << " " << index;
      const double moved = (there - begin[rank][index]).abs().max().item<double>();
      EXPECT_EQ(index<2, moved> 1e-3);
      EXPECT_EQ(index == 2, moved == 0);
      EXPECT_FALSE(group.layers[rank][index].grad().defined());
    }
  }
}

TEST(DistributedOptimizerTest, A1_TenStepsOfSgdWithMomentumEqualOneProcess) {
  for (const auto& [type, limit] : {std::pair(at::kFloat, 1e-6), std::pair(at::kDouble, 1e-12)}) {
    ExpectTenEqualSteps(type, limit, "SGD", {{"lr", 0.05}, {"momentum", 0.9}}, [](const auto& parameters) {
      return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
    });
  }
}

TEST(DistributedOptimizerTest, A1_TenStepsOfAdamEqualOneProcess) {
  for (const auto& [type, limit] : {std::pair(at::kFloat, 1e-6), std::pair(at::kDouble, 1e-12)}) {
    ExpectTenEqualSteps(type, limit, "Adam", {{"lr", 0.02}}, [](const auto& parameters) {
      return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.02));
    });
  }
}

TEST(DistributedOptimizerTest, A1_TenStepsOfTheOtherClassesEqualOneProcess) {
  namespace to = torch::optim;
  ExpectTenEqualSteps(at::kDouble, 1e-12, "AdamW", {{"lr", 0.02}, {"amsgrad", 1}}, [](const auto& parameters) {
    return std::make_unique<to::AdamW>(parameters, to::AdamWOptions(0.02).amsgrad(true).weight_decay(0.01));
  });
  ExpectTenEqualSteps(at::kDouble, 1e-12, "Adagrad", {{"lr", 0.05}, {"lr_decay", 0.1}}, [](const auto& parameters) {
    return std::make_unique<to::Adagrad>(parameters, to::AdagradOptions(0.05).lr_decay(0.1));
  });
  ExpectTenEqualSteps(at::kDouble, 1e-12, "RMSprop", {{"momentum", 0.5}, {"centered", 1}}, [](const auto& parameters) {
    return std::make_unique<to::RMSprop>(parameters, to::RMSpropOptions(0.01).momentum(0.5).centered(true));
  });
}

std::string TextOf(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.failure().text;
  }
  return "no error";
}

TEST(DistributedOptimizerTest, AFailedStepHasEndedEverywhereWhenItThrows) {
  const auto slow =
      std::make_shared<Faults>(std::vector<Fault>{{.function = "optim.step", .delay = std::chrono::milliseconds(200)}});
  Group group(at::kDouble, slow);
  Worker& worker = *group.workers[0];
  std::vector<RRef<at::Tensor>> references;
  for (const char* owner : {"worker0", "worker2"}) {
    references.push_back(worker.remote<at::Tensor>(owner, "parameter", std::tuple<int64_t>(0)));
  }
  optim::DistributedOptimizer optimizer(worker, "Adam", references, {});
  const autograd::Context context(worker);
  const auto h = worker.rpc_sync<at::Tensor>("worker2", "forward", std::tuple<at::Tensor>(Batch(0, at::kDouble)));
  // Adam refuses the sparse gradient of worker0's parameter at once.
  const at::Tensor sparse = at::embedding(group.layers[0][0], at::zeros({1}, at::kLong), -1, false, true);
  autograd::backward(worker, context.id(), {h.square().sum() + sparse.sum()});
  const at::Tensor before = group.layers[2][0].detach().clone();
  EXPECT_THROW(optimizer.step(context.id()), Error);
  EXPECT_FALSE(group.layers[2][0].detach().equal(before)) << "the step of worker2 still goes on";
}

TEST(DistributedOptimizerTest, ErrorsOfTheOwnersReachTheCaller) {
  Group group(at::kDouble);
  Worker& worker = *group.workers[0];
  const auto references = group.References();
  const auto make = [&](const std::string& name, const optim::Options& options) {
    return TextOf([&] { optim::DistributedOptimizer(worker, name, references, options); });
  };
  EXPECT_NE(make("Sgd", {}).find("no optimizer named 'Sgd'"), std::string::npos) << make("Sgd", {});
  EXPECT_NE(make("SGD", {{"speed", 1}, {"lr", 1}}).find("no option 'speed'"), std::string::npos);
  EXPECT_NE(make("SGD", {{"lr", -1}}).find("Invalid learning rate: -1"), std::string::npos)
      << make("SGD", {{"lr", -1}});
  optim::DistributedOptimizer good(worker, "SGD", references, {{"lr", 1}});
  EXPECT_NE(TextOf([&] { good.step(77); }).find("autograd context with id: 77"), std::string::npos);
}

}  // namespace
}  // namespace gradwire
