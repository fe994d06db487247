// Passes over several workers: values (A1, A2, A4, A5).
#include "autograd/protocol.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <thread>

#include "autograd/test_network.h"
#include "autograd/test_tensors.h"
#include "base/test_failure.h"

namespace gradwire::autograd {
namespace {

TEST(ProtocolTest, A1_OneHop) {
  TestNetwork network(2);
  OneHop job{network};
  network.at(0).Backward(job.context, {job.Loss()}, false);
  EXPECT_LT(Difference(network.Gradient(0, job.context, job.x), job.Wanted()[0]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, job.context, job.w), job.Wanted()[1]), 1e-12);
  EXPECT_FALSE(job.x.grad().defined());
  EXPECT_EQ(network.at(0).passes() + network.at(1).passes(), 0u);
}

TEST(ProtocolTest, A6_ALocalGraphSendsNothing) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  network.at(0).Backward(context, {(x * x).sum()}, false);
  EXPECT_LT(Difference(network.Gradient(0, context, x), x.detach() * 2), 1e-12);
  EXPECT_EQ(network.messages(), 0u);
}

TEST(ProtocolTest, A1_FanOutFanInReuseNestedAndUnusedResults) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), u = Leaf({4}), v = Leaf({4});
  const auto on_two = [&](TensorList args) { return TensorList{at::sin(args[0] * v), args[0] + v}; };
  const auto on_one = [&](TensorList args) {
    const at::Tensor h = args[0] * u;
    const TensorList deep = network.Call(1, 2, {h}, on_two);
    network.Call(1, 2, {h}, on_two);  // unused
    return TensorList{deep[0] + h, h * u};
  };
  const auto program = [&](auto one, auto two) {
    const at::Tensor h = at::tanh(x);
    const TensorList a = one(h), b = two(h), c = two(a[0]), unused = one(h);
    return (a[0] * b[0] + c[1] * h).sum() + b[1].sum();
  };
  at::Tensor loss;
  {
    const InContext scope(network, 0, context);
    loss = program([&](at::Tensor t) { return network.Call(0, 1, {t}, on_one); },
                   [&](at::Tensor t) { return network.Call(0, 2, {t}, on_two); });
  }
  network.at(0).Backward(context, {loss}, false);

  const auto two = [&](at::Tensor t) { return TensorList{at::sin(t * v), t + v}; };
  const auto one = [&](at::Tensor t) {
    const at::Tensor h = t * u;
    return TensorList{two(h)[0] + h, h * u};
  };
  const auto wanted = torch::autograd::grad({program(one, two)}, {x, u, v});
  EXPECT_LT(Difference(network.Gradient(0, context, x), wanted[0]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, context, u), wanted[1]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(2, context, v), wanted[2]), 1e-12);
}

// A random program over three workers: each step uses the parameter of the worker it runs on, or calls another worker
// with some of the values at hand. With `network` null the calls are plain function calls.
class RandomProgram {
 public:
  RandomProgram(TestNetwork* network, const TensorList& parameters, uint64_t seed)
      : network_(network), parameters_(parameters), state_(seed * 2654435761 + 1) {}

  TensorList Run(size_t here, TensorList values, int depth) {
    for (int step = 0; step < 5; ++step) {
      const at::Tensor value = values[Draw(values.size())];
      switch (Draw(depth > 0 ? 4 : 2)) {
        case 0: values.push_back(at::tanh(value * parameters_[here])); break;
        case 1: values.push_back(value + values[Draw(values.size())] * 0.5); break;
        default: {
          TensorList args{value};
          if (Draw(2)) args.push_back(values[Draw(values.size())]);
          if (Draw(3) == 0) args.push_back(at::ones({4}, at::kDouble));  // does not require grad
          const size_t there = Draw(3);
          const auto body = [&](TensorList given) { return Run(there, std::move(given), depth - 1); };
          const TensorList results = network_ ? network_->Call(here, there, args, body) : body(args);
          for (const at::Tensor& result : results) {
            if (Draw(4)) values.push_back(result);  // some stay unused
          }
        }
      }
    }
    TensorList results{values.back()};
    if (Draw(2)) results.push_back(values[Draw(values.size())]);
    return results;
  }

 private:
  size_t Draw(size_t below) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return (state_ >> 33) % below;
  }
  TestNetwork* network_;
  const TensorList& parameters_;
  uint64_t state_;
};

// Also A3: before the pass that counts there is one that fails, if it reaches the parameter whose hook throws.
TEST(ProtocolTest, A1_RandomProgramsEqualOneProcess) {
  TestNetwork network(3);
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const TensorList parameters{Leaf({4}), Leaf({4}), Leaf({4})};
    const at::Tensor x = Leaf({4});
    std::atomic<bool> fails{false};
    std::atomic<int> hook_calls{0};
    parameters[seed % 3].register_hook([&](const at::Tensor& g) {
      ++hook_calls;
      if (fails) throw std::runtime_error("on purpose");
      return g;
    });
    const ContextId context = network.NewContext(0);
    at::Tensor loss;
    {
      const InContext scope(network, 0, context);
      loss = RandomProgram(&network, parameters, seed).Run(0, {x * 2}, 3)[0].sum();
    }
    const at::Tensor local = RandomProgram(nullptr, parameters, seed).Run(0, {x * 2}, 3)[0].sum();
    ASSERT_EQ(loss.item<double>(), local.item<double>()) << "seed " << seed;
    if (local.requires_grad()) {
      fails = true;
      try {
        network.at(0).Backward(context, {loss}, true);
        EXPECT_EQ(hook_calls, 0) << "seed " << seed;
      } catch (const Error& error) {
        EXPECT_EQ(error.failure().text, "Error on Node " + std::to_string(seed % 3) + ": on purpose");
        fails = false;
        network.at(0).Backward(context, {loss}, false);
        EXPECT_EQ(hook_calls, 2) << "seed " << seed;
      }
      fails = false;
    }
    TensorList inputs = parameters;
    inputs.push_back(x);
    const auto wanted = local.requires_grad()
                            ? torch::autograd::grad({local}, inputs, {}, std::nullopt, false, /*allow_unused=*/true)
                            : TensorList(4);
    for (size_t rank = 0; rank < 3; ++rank) {
      const at::Tensor got = network.Gradient(rank, context, parameters[rank]);
      ASSERT_EQ(got.defined(), wanted[rank].defined()) << "seed " << seed;
      if (!got.defined()) continue;
      ASSERT_LT(Difference(got, wanted[rank]), 1e-12) << "seed " << seed;
    }
    ASSERT_EQ(network.Gradient(0, context, x).defined(), wanted[3].defined()) << "seed " << seed;
    if (wanted[3].defined()) {
      ASSERT_LT(Difference(network.Gradient(0, context, x), wanted[3]), 1e-12) << "seed " << seed;
    }
    EXPECT_TRUE(network.at(0).Release(context));
  }
  network.Settle();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(network.table(rank).ids().empty());
}

TEST(ProtocolTest, A2_AnUnusedResultCausesNoGradientTraffic) {
  TestNetwork network(3);
  OneHop job{network};
  const at::Tensor loss = job.Loss();
  {
    const InContext scope(network, 0, job.context);
    network.Call(0, 2, {job.x}, [](TensorList args) { return TensorList{args[0] * 2}; });
  }
  network.Kill(2);  // nobody would notice
  network.at(0).Backward(job.context, {loss}, false);
  EXPECT_LT(Difference(network.Gradient(0, job.context, job.x), job.Wanted()[0]), 1e-12);
}

TEST(ProtocolTest, A1_AnyWorkerOfTheContextMayStart) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), w = Leaf({4});
  at::Tensor there;
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {x}, [&](TensorList args) {
      there = (args[0] * w).sum();
      return TensorList{};
    });
  }
  network.at(1).Backward(context, {there}, false);
  EXPECT_LT(Difference(network.Gradient(0, context, x), w.detach()), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, context, w), x.detach()), 1e-12);
}

TEST(ProtocolTest, A1_SeveralRootsOneBehindTheOther) {
  TestNetwork network(2);
  OneHop job{network};
  const at::Tensor first = job.Loss();
  network.at(0).Backward(job.context, {first, first * 2}, false);
  EXPECT_LT(Difference(network.Gradient(1, job.context, job.w), 3 * job.Wanted()[1]), 1e-12);
}

TEST(ProtocolTest, A4_RetainedPassesAccumulateAndHooksRunOncePerPass) {
  TestNetwork network(2);
  OneHop job{network};
  int calls = 0;
  job.w.register_hook([&](const at::Tensor& g) {
    ++calls;
    return g;
  });
  const at::Tensor loss = job.Loss();
  network.at(0).Backward(job.context, {loss}, true);
  network.at(0).Backward(job.context, {loss}, true);
  EXPECT_EQ(calls, 2);
  EXPECT_LT(Difference(network.Gradient(0, job.context, job.x), 2 * job.Wanted()[0]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, job.context, job.w), 2 * job.Wanted()[1]), 1e-12);
}

struct PostHook : torch::autograd::PostAccumulateGradHook {
  explicit PostHook(std::function<void(const at::Tensor&)> body) : body(std::move(body)) {}
  void operator()(const at::Tensor& leaf) override { body(leaf); }
  std::function<void(const at::Tensor&)> body;
};

void SetPostHook(const at::Tensor& leaf, std::function<void(const at::Tensor&)> body) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<PostHook>(std::move(body)));
}

TEST(ProtocolTest, A4_PostAccumulateHooksRunOncePerPassAndSeeTheGradientOfTheContext) {
  TestNetwork network(2);
  OneHop job{network};
  const at::Tensor own = at::ones({4}, at::kDouble);
  job.w.mutable_grad() = own;
  TensorList seen;
  SetPostHook(job.w, [&](const at::Tensor& leaf) { seen.push_back(leaf.grad().clone()); });
  SetPostHook(job.x, [&](const at::Tensor& leaf) { leaf.mutable_grad() = at::Tensor(); });  // as zero_grad() does
  const at::Tensor loss = job.Loss();
  for (int pass = 0; pass < 2; ++pass) network.at(0).Backward(job.context, {loss}, true);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_LT(Difference(seen[0], job.Wanted()[1]), 1e-12);
  EXPECT_LT(Difference(seen[1], 2 * job.Wanted()[1]), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, job.context, job.w), 2 * job.Wanted()[1]), 1e-12);
  EXPECT_TRUE(job.w.grad().is_same(own)) << "as it was";
  EXPECT_FALSE(network.Gradient(0, job.context, job.x).defined());
  EXPECT_FALSE(job.x.grad().defined());
}

TEST(ProtocolTest, A4_APostAccumulateHookThatThrowsFailsThePassAndPoisonsTheContext) {
  TestNetwork network(2);
  OneHop job{network};
  SetPostHook(job.w, [&](const at::Tensor&) { throw std::out_of_range("on purpose"); });
  const at::Tensor loss = job.Loss();
  for (int pass = 0; pass < 2; ++pass) {
    const Failure failure = FailureOf([&] { network.at(0).Backward(job.context, {loss}, true); });
    EXPECT_EQ(failure.text, "Error on Node 1: on purpose");
    EXPECT_EQ(failure.type_name, "std::out_of_range");
  }
  EXPECT_FALSE(job.w.grad().defined());
}

TEST(ProtocolTest, A5_ContextsAtTheSameTimeOnTheSameParametersDoNotMix) {
  TestNetwork network(3);
  const at::Tensor w = Leaf({4});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        const size_t from = t % 2;
        const ContextId context = network.NewContext(from);
        const double scale = static_cast<double>(t) + 1;
        const at::Tensor x = at::full({4}, scale, at::kDouble).set_requires_grad(true);
        at::Tensor loss;
        {
          const InContext scope(network, from, context);
          loss = network.Call(from, 2, {x}, [&](TensorList args) { return TensorList{args[0] * w}; })[0].sum();
        }
        network.at(from).Backward(context, {loss}, false);
        if (Difference(network.Gradient(2, context, w), x.detach()) > 0) ++wrong;
        if (Difference(network.Gradient(from, context, x), w.detach()) > 0) ++wrong;
        network.at(from).Release(context);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ProtocolTest, BadRootsAreClearErrors) {
  TestNetwork network(1);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), scalar = Leaf({});
  const auto text_of = [&](ContextId id, const TensorList& roots) {
    const Failure failure = FailureOf([&] { network.at(0).Backward(id, roots, false); });
    EXPECT_EQ(failure.code, ErrorCode::kInvalid);
    return failure.text;
  };
  EXPECT_NE(text_of(100, {x.sum()}).find("context with id: 100"), std::string::npos);
  EXPECT_NE(text_of(100, {at::ones({})}).find("context with id: 100"), std::string::npos) << "looked up first";
  EXPECT_NE(text_of(context, {}).find("at least one root"), std::string::npos);
  EXPECT_NE(text_of(context, {x.sum(), at::ones({})}).find("requires_grad not set on root 1"), std::string::npos);
  EXPECT_NE(text_of(context, {x * 2}).find("not a scalar"), std::string::npos);
  EXPECT_NE(text_of(context, {scalar}).find("leaf"), std::string::npos);
}

TEST(ProtocolTest, ASecondPassInOneContextAtTheSameTimeIsAClearError) {
  TestNetwork network(2);
  OneHop job{network};
  const at::Tensor loss = job.Loss();
  const at::Tensor wanted = job.Wanted()[1];
  Failure failure;
  job.w.register_hook([&](const at::Tensor& g) {
    failure = FailureOf([&] { network.at(0).Backward(job.context, {loss}, true); });
    return g;
  });
  network.at(0).Backward(job.context, {loss}, true);
  EXPECT_EQ(failure.code, ErrorCode::kInvalid);
  EXPECT_NE(failure.text.find("one at a time"), std::string::npos) << failure.text;
  EXPECT_LT(Difference(network.Gradient(1, job.context, job.w), wanted), 1e-12) << "the first is unharmed";
}

// What makes a gradient of zeros out of none, as functions of Python do.
class TwiceOrZeros : public torch::autograd::Function<TwiceOrZeros> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static TensorList backward(torch::autograd::AutogradContext*, TensorList g) {
    return {g[0].defined() ? g[0] * 2 : at::zeros({4}, at::kDouble)};
  }
};

class OnlyForTheFirst : public torch::autograd::Function<OnlyForTheFirst> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return a + b;
  }
  static TensorList backward(torch::autograd::AutogradContext*, TensorList g) { return {g[0], at::Tensor()}; }
};

TEST(ProtocolTest, A1_WhatIsUnusedInsideAUsedMessageGetsNoGradient) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), y = Leaf({4}), z = Leaf({4}), w = Leaf({4}), unused = Leaf({4});
  at::Tensor loss;
  {
    const InContext scope(network, 0, context);
    const TensorList results = network.Call(0, 1, {x, y, z * 1}, [&](TensorList args) {
      return TensorList{OnlyForTheFirst::apply(args[0] * w, args[2]), TwiceOrZeros::apply(unused * args[1])};
    });
    loss = results[0].sum();
  }
  network.at(0).Backward(context, {loss}, false);
  EXPECT_LT(Difference(network.Gradient(0, context, x), w.detach()), 1e-12);
  EXPECT_LT(Difference(network.Gradient(1, context, w), x.detach()), 1e-12);
  EXPECT_FALSE(network.Gradient(1, context, unused).defined()) << "of a result that is not used";
  EXPECT_FALSE(network.Gradient(0, context, y).defined()) << "of an argument that is not used";
  EXPECT_FALSE(network.Gradient(0, context, z).defined()) << "undefined on one worker, undefined on the next";
}

}  // namespace
}  // namespace gradwire::autograd
