// LocalOptimizer against the published update rules, written out in plain tensors.
#include "optim/local_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "gradwire/error.h"

namespace gradwire::optim {
namespace {

// The gradient of 'sum of x^4 / 4 + x' by hand, so that each step's depends on the one before.
at::Tensor GradientAt(const at::Tensor& x) { return x.detach().pow(3) + 1; }

struct Sgd {
  double lr, momentum, weight_decay = 0;
  bool nesterov = false;
  at::Tensor velocity = {};

  void Step(at::Tensor& x) {
    const at::Tensor g = GradientAt(x) + weight_decay * x;
    velocity = velocity.defined() ? momentum * velocity + g : g;
    x = x - lr * (nesterov ? g + momentum * velocity : velocity);
  }
};

struct Adam {
  double lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  at::Tensor first = {}, second = {};
  int steps = 0;

  void Step(at::Tensor& x) {
    at::Tensor g = GradientAt(x);
    if (decoupled) x = x * (1 - lr * weight_decay);
    if (!decoupled) g = g + weight_decay * x;
    if (!first.defined()) first = second = at::zeros_like(x);
    ++steps;
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * g * g;
    const at::Tensor mean = first / (1 - std::pow(beta1, steps)), variance = second / (1 - std::pow(beta2, steps));
    x = x - lr * mean / (variance.sqrt() + eps);
  }
};

template <class Rule>
void ExpectTenEqualSteps(const std::string& name, const Options& options, const Rule& rule) {
  for (const auto& [type, limit] : {std::pair(at::kFloat, 1e-6), std::pair(at::kDouble, 1e-12)}) {
    const at::Tensor begin = at::linspace(-0.6, 0.8, 7, type);
    const at::Tensor parameter = begin.clone().set_requires_grad(true);
    at::Tensor wanted = begin.clone();
    Rule own = rule;
    const LocalOptimizer optimizer(name, {parameter}, options);
    for (int i = 0; i < 10; ++i) {
      own.Step(wanted);
      optimizer.Step({{parameter, GradientAt(parameter)}});
    }
    EXPECT_LE((parameter.detach() - wanted).abs().max().item<double>(), limit) << name;
    EXPECT_GT((wanted - begin).abs().min().item<double>(), 0.01) << "and there is something to compare";
  }
}

TEST(LocalOptimizer, SgdWithMomentumFollowsItsRule) {
  ExpectTenEqualSteps("SGD", {{"lr", 0.05}, {"momentum", 0.9}}, Sgd{.lr = 0.05, .momentum = 0.9});
  ExpectTenEqualSteps("SGD", {{"lr", 0.05}, {"momentum", 0.8}, {"nesterov", 1}, {"weight_decay", 0.1}},
                      Sgd{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true});
}

TEST(LocalOptimizer, AdamFollowsItsRule) {
  ExpectTenEqualSteps("Adam", {{"lr", 0.02}}, Adam{.lr = 0.02});
  ExpectTenEqualSteps("Adam", {{"lr", 0.02}, {"beta1", 0.8}, {"beta2", 0.99}, {"eps", 1e-6}, {"weight_decay", 0.1}},
                      Adam{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1});
  ExpectTenEqualSteps("AdamW", {{"lr", 0.02}, {"weight_decay", 0.1}},
                      Adam{.lr = 0.02, .weight_decay = 0.1, .decoupled = true});
}

TEST(LocalOptimizer, StepsWhatHasAGradientAndLeavesGradAsItWas) {
  const at::Tensor with = at::ones({2}).set_requires_grad(true), without = at::ones({2}).set_requires_grad(true);
  const at::Tensor stranger = at::ones({2}).set_requires_grad(true);
  with.mutable_grad() = at::full({2}, 7.0);
  const LocalOptimizer optimizer("SGD", {with, without}, {{"lr", 0.5}});
  optimizer.Step({{with, at::ones({2})}, {stranger, at::ones({2})}});
  EXPECT_TRUE(with.detach().equal(at::full({2}, 0.5)));
  EXPECT_TRUE(without.detach().equal(at::ones({2})));
  EXPECT_TRUE(stranger.detach().equal(at::ones({2})));
  EXPECT_TRUE(with.grad().equal(at::full({2}, 7.0)));
  EXPECT_FALSE(without.grad().defined());
  EXPECT_FALSE(stranger.grad().defined());
}

TEST(LocalOptimizer, TwoOfThemMayHaveTheSameParameters) {  // A5: one for each trainer
  constexpr int kSteps = 300;
  const at::Tensor parameter = at::zeros({64}).set_requires_grad(true);
  std::vector<std::thread> threads;
  for (const double gradient : {1.0, 2.0}) {
    threads.emplace_back([&, gradient] {
      const LocalOptimizer optimizer("SGD", {parameter}, {{"lr", 1}});
      for (int i = 0; i < kSteps; ++i) optimizer.Step({{parameter, at::full({64}, -gradient)}});
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(parameter.detach().equal(at::full({64}, 3.0 * kSteps)));
  EXPECT_FALSE(parameter.grad().defined());
}

TEST(LocalOptimizer, AParameterThatIsGivenTwiceKeepsItsGrad) {
  const at::Tensor parameter = at::ones({2}).set_requires_grad(true);
  const LocalOptimizer optimizer("SGD", {parameter, parameter}, {{"lr", 0.5}});
  optimizer.Step({{parameter, at::ones({2})}});
  EXPECT_FALSE(parameter.grad().defined());
}

TEST(LocalOptimizer, LeavesGradAsItWasWhenAStepFails) {
  const at::Tensor parameter = at::ones({2}).set_requires_grad(true);
  const LocalOptimizer optimizer("Adam", {parameter}, {});
  const at::Tensor sparse = at::ones({2}).to_sparse();  // Adam takes none
  EXPECT_ANY_THROW(optimizer.Step({{parameter, sparse}}));
  EXPECT_FALSE(parameter.grad().defined());
  EXPECT_TRUE(parameter.detach().equal(at::ones({2})));
}

std::string Refusal(const std::string& name, const Options& options) {
  try {
    const LocalOptimizer optimizer(name, {at::ones({2}).set_requires_grad(true)}, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.failure().text;
  }
  return "no error";
}

TEST(LocalOptimizer, RefusesUnknownNamesAndOptions) {
  EXPECT_NE(Refusal("Sgd", {{"lr", 1}}).find("no optimizer named 'Sgd'"), std::string::npos);
  EXPECT_NE(Refusal("SGD", {}).find("needs the option 'lr'"), std::string::npos);
  EXPECT_EQ(Refusal("SGD", {{"learning_rate", 1}}), "optimizer SGD has no option 'learning_rate', and needs 'lr'");
  EXPECT_NE(Refusal("Adam", {{"momentum", 1}}).find("has no option 'momentum'"), std::string::npos);
}

TEST(LocalOptimizer, DoesNotTravel) {
  const LocalOptimizer optimizer("Adagrad", {at::ones({2}).set_requires_grad(true)}, {});
  EXPECT_THROW(optimizer.Encode(), Error);
}

}  // namespace
}  // namespace gradwire::optim
