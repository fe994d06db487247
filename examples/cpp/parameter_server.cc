// Training across processes in C++: a parameter server (rank 0) holds the body of a small network, two trainers (ranks
// 1 and 2) hold a classifier and half of the images each. Rank 1 drives: a distributed backward pass gives the
// gradients of all three, a distributed optimizer steps them where they live.
//
//   for rank in 0 1 2; do parameter_server $rank tcp://127.0.0.1:29500 digits.csv & done; wait
//
// digits.csv: one handwritten digit a line, 64 pixels of 0 to 16 and the digit, as scikit-learn ships them.
#include <ATen/ATen.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "gradwire/autograd.h"
#include "gradwire/optim.h"
#include "gradwire/worker.h"

using at::Tensor;

namespace {

constexpr int64_t kBatch = 64;
constexpr int kEpochs = 20;

Tensor Parameter(std::initializer_list<int64_t> shape, int64_t fan_in) {
  return at::randn(shape).div_(std::sqrt(static_cast<double>(fan_in))).set_requires_grad(true);
}

// Images as {n, 1, 8, 8} from 0 to 1, labels as {n}; every fifth is held out.
struct Digits {
  explicit Digits(const char* path) {
    std::ifstream file(path);
    std::vector<double> values;
    for (std::string line; std::getline(file, line);) {
      for (size_t at = 0; at < line.size();
           at = line.find(',', at) == std::string::npos ? line.size() : line.find(',', at) + 1) {
        values.push_back(std::atof(line.c_str() + at));
      }
    }
    if (values.empty() || values.size() % 65 != 0) throw std::runtime_error(std::string("no digits in ") + path);
    const Tensor rows = at::tensor(values).to(at::kFloat).view({-1, 65});
    const Tensor held_out = at::arange(rows.size(0)).remainder(5).eq(0);
    images = rows.index({held_out.logical_not()}).slice(1, 0, 64).view({-1, 1, 8, 8}) / 16;
    labels = rows.index({held_out.logical_not()}).select(1, 64).to(at::kLong);
    held_out_images = rows.index({held_out}).slice(1, 0, 64).view({-1, 1, 8, 8}) / 16;
    held_out_labels = rows.index({held_out}).select(1, 64).to(at::kLong);
  }
  Tensor images, labels, held_out_images, held_out_labels;
};

// The server's part: images to 64 features.
struct Body {
  Tensor conv = Parameter({16, 1, 3, 3}, 9), conv_bias = at::zeros({16}).set_requires_grad(true);
  Tensor linear = Parameter({64, 256}, 256), linear_bias = at::zeros({64}).set_requires_grad(true);

  Tensor Forward(const Tensor& images) const {
    const Tensor maps = at::max_pool2d(at::relu(at::conv2d(images, conv, conv_bias, 1, 1)), {2, 2});
    return at::relu(at::linear(maps.flatten(1), linear, linear_bias));
  }
  std::vector<Tensor> parameters() const { return {conv, conv_bias, linear, linear_bias}; }
};

// The functions that the ranks call on each other. A call may come in before the constructor of this process's worker
// has returned, so handlers ask for the worker through a future.
struct Group {
  std::promise<gradwire::Worker*> promise;
  std::shared_future<gradwire::Worker*> worker = promise.get_future().share();
  std::shared_ptr<gradwire::Functions> functions = std::make_shared<gradwire::Functions>();

  gradwire::Function<Tensor(Tensor)> features{"features"};
  gradwire::Function<Tensor(int64_t)> loss{"loss"};
  gradwire::Function<std::vector<gradwire::RRef<Tensor>>()> parameters{"parameters"};

  void Offer(std::vector<Tensor> own) {
    functions->Add(parameters.name, [this, own = std::move(own)] {
      std::vector<gradwire::RRef<Tensor>> references;
      for (const Tensor& one : own) references.push_back(worker.get()->make_rref(one));
      return references;
    });
  }
};

void Serve(Group& group) {
  auto body = std::make_shared<Body>();
  group.functions->Add(group.features.name, [body](Tensor images) { return body->Forward(images); });
  group.Offer(body->parameters());
}

struct Trainer {
  Trainer(Group& group, const char* path, int shard) : digits(path) {
    const Tensor mine = at::arange(shard, digits.labels.size(0), 2);
    images = digits.images.index({mine});
    labels = digits.labels.index({mine});
    group.Offer({head, bias});
    group.functions->Add(group.loss.name, [this, &group](int64_t step) {
      const Tensor batch = (at::arange(kBatch) + step * kBatch).remainder(labels.size(0));
      return at::cross_entropy_loss(Logits(group, images.index({batch})), labels.index({batch}));
    });
  }

  Tensor Logits(Group& group, const Tensor& of) const {
    return at::linear(group.worker.get()->rpc_sync("server", group.features, of), head, bias);
  }

  Digits digits;
  Tensor images, labels;
  Tensor head = Parameter({10, 64}, 64), bias = at::zeros({10}).set_requires_grad(true);
};

void Train(Group& group, const Trainer& trainer) {
  gradwire::Worker& worker = *group.worker.get();
  std::vector<gradwire::RRef<Tensor>> parameters;
  for (const gradwire::WorkerInfo& info : worker.worker_infos()) {
    for (auto& one : worker.rpc_sync(info.name, group.parameters)) parameters.push_back(one);
  }
  gradwire::optim::DistributedOptimizer optimizer(worker, "Adam", parameters, {{"lr", 2e-3}});
  const int64_t steps = kEpochs * (trainer.labels.size(0) / kBatch);
  for (int64_t step = 0; step < steps; ++step) {
    gradwire::autograd::Context context(worker);
    auto first = worker.rpc_async("trainer0", group.loss, step);
    auto second = worker.rpc_async("trainer1", group.loss, step);
    const Tensor loss = first.wait() + second.wait();
    gradwire::autograd::backward(worker, context.id(), {loss});
    optimizer.step(context.id());
    if (step % 50 == 0) std::cout << "step " << step << ": loss " << loss.item<double>() / 2 << std::endl;
  }
  const Tensor guess = trainer.Logits(group, trainer.digits.held_out_images).argmax(1);
  std::cout << "accuracy: " << std::fixed << std::setprecision(3)
            << guess.eq(trainer.digits.held_out_labels).to(at::kDouble).mean().item<double>() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: parameter_server RANK tcp://HOST:PORT DIGITS_CSV\n";
    return 2;
  }
  const int rank = std::atoi(argv[1]);
  at::manual_seed(rank);
  Group group;
  std::unique_ptr<Trainer> trainer;
  if (rank == 0) Serve(group);
  if (rank != 0) trainer = std::make_unique<Trainer>(group, argv[3], rank - 1);

  gradwire::Worker worker({.name = rank == 0 ? "server" : "trainer" + std::to_string(rank - 1),
                           .rank = rank,
                           .world_size = 3,
                           .init_method = argv[2],
                           .functions = group.functions});
  group.promise.set_value(&worker);
  if (rank == 1) Train(group, *trainer);
  worker.shutdown();
  return 0;
}
