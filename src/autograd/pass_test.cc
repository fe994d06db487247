// The executor of one worker against local autograd: values, hooks, storage, failures, threads.
#include "autograd/pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <deque>
#include <numeric>
#include <thread>

#include "autograd/test_tensors.h"

namespace gradwire::autograd {
namespace {

constexpr WorkerId kFar{7, 1};

NodePtr Send(const TensorList& sent) { return c10::make_intrusive<SendBackward>(sent); }

// Entries of which all tensors take part.
std::vector<Pass::Entry> All(const std::vector<NodePtr>& nodes) {
  std::vector<Pass::Entry> entries;
  for (const NodePtr& node : nodes) {
    entries.push_back({node, std::vector<uint32_t>(node->num_outputs())});
    std::iota(entries.back().tensors.begin(), entries.back().tensors.end(), 0);
  }
  return entries;
}

at::Tensor GradientOf(const std::vector<LeafGradient>& gradients, const at::Tensor& leaf) {
  for (const auto& entry : gradients) {
    if (entry.leaf.is_same(leaf)) return entry.gradient;
  }
  return {};
}

Pass::Options Local(bool retain_graph = false) {
  return {.retain_graph = retain_graph, .leave = [](const RecvBackward&, TensorList) { FAIL() << "nothing leaves"; }};
}

// Runs a pass from `root` alone.
std::vector<LeafGradient> RunFrom(const at::Tensor& root, bool retain_graph = false) {
  Pass pass(Local(retain_graph));
  const NodePtr entry = Send({root});
  pass.Reach(All({entry}));
  const auto failure = pass.Arrive(entry, {at::ones_like(root)});
  EXPECT_FALSE(failure) << failure->text;
  return pass.Finish();
}

class RaiseInBackward : public torch::autograd::Function<RaiseInBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 1; }
  static TensorList backward(torch::autograd::AutogradContext*, TensorList) { throw std::out_of_range("on purpose"); }
};

class SameForBoth : public torch::autograd::Function<SameForBoth> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return a + b;
  }
  static TensorList backward(torch::autograd::AutogradContext*, TensorList g) {
    returned = g[0].clone();
    TensorList result{returned, returned};
    returned_at = returned.data_ptr();
    returned.reset();
    return result;
  }
  static inline at::Tensor returned;
  static inline void* returned_at = nullptr;
};

class OnlyFirst : public torch::autograd::Function<OnlyFirst> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return a + b;
  }
  static TensorList backward(torch::autograd::AutogradContext*, TensorList g) {
    at::Tensor fresh = g[0].clone();
    returned_at = fresh.data_ptr();
    return {fresh, at::Tensor()};
  }
  static inline void* returned_at = nullptr;
};

TEST(PassTest, A1_LocalGraphGivesTheGradientsOfLocalAutograd) {
  const at::Tensor x = Leaf({4, 8}), w = Leaf({8, 8});
  const auto loss = [&] {
    const at::Tensor h = at::tanh(x.matmul(w));
    return (h * h).sum() + at::tanh(h.matmul(w)).sum();
  };
  const auto wanted = torch::autograd::grad({loss()}, {x, w});
  const auto got = RunFrom(loss());
  ASSERT_EQ(got.size(), 2u);
  EXPECT_LT((GradientOf(got, x) - wanted[0]).abs().max().item<double>(), 1e-12);
  EXPECT_LT((GradientOf(got, w) - wanted[1]).abs().max().item<double>(), 1e-12);
  EXPECT_FALSE(x.grad().defined());
}

TEST(PassTest, A4_HooksRunOncePerPassAlsoWhenTwoSendsShareANode) {
  const at::Tensor x = Leaf({3});
  const at::Tensor h = x * 2;
  int calls = 0;
  at::Tensor seen;
  h.register_hook([&](const at::Tensor& g) {
    ++calls;
    seen = g.clone();
    return g;
  });
  const NodePtr first = Send({h}), second = Send({h * 3});
  Pass pass(Local());
  pass.Reach(All({first}));
  pass.Reach(All({second}));
  EXPECT_FALSE(pass.Arrive(first, {at::ones({3}, at::kDouble)}));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(pass.Arrive(second, {at::ones({3}, at::kDouble)}));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(seen, at::full({3}, 4.0, at::kDouble)));
  EXPECT_TRUE(at::equal(GradientOf(pass.Finish(), x), at::full({3}, 8.0, at::kDouble)));
}

TEST(PassTest, A2_OnlyWhatEntriesReachIsWaitedFor) {
  const at::Tensor x = Leaf({3});
  const at::Tensor h = x * 2;
  const NodePtr used = Send({h});
  const NodePtr unused = Send({h * 3});
  Pass pass(Local());
  pass.Reach(All({used}));
  EXPECT_FALSE(pass.Arrive(used, {at::ones({3}, at::kDouble)}));
  EXPECT_TRUE(at::equal(GradientOf(pass.Finish(), x), at::full({3}, 2.0, at::kDouble)));
}

TEST(PassTest, ReceiveNodesAreFoundOnceAndGiveNothingForWhatIsUnused) {
  TensorList received{at::ones({2}, at::kDouble).set_requires_grad(true),
                      at::ones({3}, at::kDouble).set_requires_grad(true)};
  const RecvPtr recv = RecvBackward::Attach(received, kFar, MessageId{kFar, 5});
  EXPECT_FALSE(received[0].is_leaf());
  EXPECT_EQ(received[1].grad_fn()->name(), "torch::distributed::autograd::RecvRpcBackward");
  TensorList left;
  Pass pass({.leave = [&](const RecvBackward& node, TensorList gradients) {
    EXPECT_EQ(node.peer(), kFar);
    EXPECT_EQ(node.message().number, 5u);
    EXPECT_TRUE(left.empty());
    left = std::move(gradients);
  }});
  const at::Tensor root = (received[0] * received[0]).sum();
  const NodePtr entry = Send({root});
  EXPECT_EQ(pass.Reach(All({entry})).size(), 1u);
  EXPECT_EQ(pass.Reach(All({Send({received[0] * 2})})).size(), 0u);
  Pass once({.leave = [&](const RecvBackward&, TensorList gradients) { left = std::move(gradients); }});
  ASSERT_EQ(once.Reach(All({entry})).size(), 1u);
  EXPECT_FALSE(once.Arrive(entry, {at::ones_like(root)}));
  ASSERT_EQ(left.size(), 2u);
  EXPECT_TRUE(at::equal(left[0], at::full({2}, 2.0, at::kDouble)));
  EXPECT_FALSE(left[1].defined());
}

TEST(PassTest, LocalBackwardThroughAReceivedTensorIsAClearError) {
  TensorList received{at::ones({2}).set_requires_grad(true)};
  RecvBackward::Attach(received, kFar, MessageId{kFar, 5});
  try {
    torch::autograd::backward({received[0].sum()}, {});
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("distributed autograd context"), std::string::npos) << error.what();
  }
}

TEST(PassTest, A4_RetainedGraphRunsAgainAndAFreedOneSaysSo) {
  const at::Tensor x = Leaf({3});
  const at::Tensor root = (x * x).sum();
  const at::Tensor first = GradientOf(RunFrom(root, true), x);
  EXPECT_TRUE(at::equal(GradientOf(RunFrom(root, false), x), first));
  Pass pass(Local());
  const NodePtr entry = Send({root});
  pass.Reach(All({entry}));
  const auto failure = pass.Arrive(entry, {at::ones_like(root)});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kRemote);
}

TEST(PassTest, A3_ANodesExceptionIsReturnedWithItsTypeAndBareText) {
  const at::Tensor x = Leaf({3});
  const at::Tensor root = RaiseInBackward::apply(x).sum();
  Pass pass(Local());
  const NodePtr entry = Send({root});
  pass.Reach(All({entry}));
  const auto failure = pass.Arrive(entry, {at::ones_like(root)});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, "on purpose");
  EXPECT_EQ(failure->type_name, "std::out_of_range");
  EXPECT_TRUE(pass.Finish().empty());
}

TEST(PassTest, DescribeKnowsExceptionsThatTheCoreDoesNot) {
  struct Foreign {};
  const at::Tensor x = Leaf({3});
  x.register_hook([](const at::Tensor&) -> at::Tensor { throw Foreign(); });
  Pass::Options options = Local();
  options.describe = [](const std::exception_ptr& caught) -> std::optional<Failure> {
    try {
      std::rethrow_exception(caught);
    } catch (const Foreign&) {
      return Failure{.code = ErrorCode::kRemote, .text = "foreign", .type_name = "Foreign"};
    } catch (...) {
      return std::nullopt;
    }
  };
  Pass pass(std::move(options));
  const at::Tensor root = x.sum();
  const NodePtr entry = Send({root});
  pass.Reach(All({entry}));
  const auto failure = pass.Arrive(entry, {at::ones_like(root)});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->type_name, "Foreign");
}

TEST(PassTest, ArrivingGradientsAreChecked) {
  const at::Tensor x = Leaf({3});
  const NodePtr entry = Send({x * 2});
  {
    Pass pass(Local());
    pass.Reach(All({entry}));
    EXPECT_TRUE(pass.Arrive(entry, {at::ones({5}, at::kDouble)})) << "wrong shape";
  }
  {
    Pass pass(Local());
    pass.Reach(All({entry}));
    EXPECT_TRUE(pass.Arrive(entry, {at::ones({3}), at::ones({3})})) << "wrong number";
  }
  Pass pass(Local());
  pass.Reach(All({entry}));
  EXPECT_FALSE(pass.Arrive(entry, {at::ones({3}, at::kFloat)}));
  EXPECT_EQ(GradientOf(pass.Finish(), x).scalar_type(), at::kDouble);
}

TEST(PassTest, AGradientWithOneConsumerIsTakenWithoutACopy) {
  const at::Tensor a = Leaf({4}), b = Leaf({4});
  const auto got = RunFrom(OnlyFirst::apply(a, b).sum());
  ASSERT_EQ(got.size(), 1u) << "an undefined gradient makes no entry";
  EXPECT_EQ(GradientOf(got, a).data_ptr(), OnlyFirst::returned_at);
}

TEST(PassTest, OneTensorForTwoLeavesIsCopiedTwice) {
  const at::Tensor a = Leaf({4}), b = Leaf({4});
  const auto got = RunFrom(SameForBoth::apply(a, b).sum());
  ASSERT_EQ(got.size(), 2u);
  const void* at_a = GradientOf(got, a).data_ptr();
  const void* at_b = GradientOf(got, b).data_ptr();
  EXPECT_NE(at_a, at_b);
  EXPECT_NE(at_a, SameForBoth::returned_at);
  EXPECT_NE(at_b, SameForBoth::returned_at);
}

TEST(PassTest, SparseGradientsOfTwoSendsAddUp) {
  const at::Tensor table = Leaf({10, 4});
  const at::Tensor rows = at::embedding(table, at::tensor({1, 3}, at::kLong), -1, false, /*sparse=*/true);
  const NodePtr first = Send({rows}), second = Send({rows});
  Pass pass(Local());
  pass.Reach(All({first, second}));
  EXPECT_FALSE(pass.Arrive(first, {at::ones({2, 4}, at::kDouble)}));
  EXPECT_FALSE(pass.Arrive(second, {at::ones({2, 4}, at::kDouble)}));
  const at::Tensor gradient = GradientOf(pass.Finish(), table);
  ASSERT_TRUE(gradient.is_sparse());
  EXPECT_EQ(gradient.to_dense().sum().item<double>(), 16);
}

TEST(PassTest, ViewsChangedInPlaceAndUndefinedGradients) {
  const at::Tensor x = Leaf({4});
  const at::Tensor y = x * 2;
  y.slice(0, 0, 2).mul_(3);
  const NodePtr entry = Send({y, x.view({2, 2})});
  Pass pass(Local());
  pass.Reach(All({entry}));
  EXPECT_FALSE(pass.Arrive(entry, {at::ones({4}, at::kDouble), at::Tensor()}));
  EXPECT_TRUE(at::equal(GradientOf(pass.Finish(), x), at::tensor({6.0, 6.0, 2.0, 2.0}, at::kDouble)));
}

TEST(PassTest, AHookMayRunAnotherPass) {
  const at::Tensor x = Leaf({3}), y = Leaf({3});
  const at::Tensor h = x * 2;
  at::Tensor inner;
  h.register_hook([&](const at::Tensor& g) {
    const at::AutoGradMode grad(true);
    inner = GradientOf(RunFrom((y * y).sum()), y);
    return g;
  });
  const auto got = RunFrom(h.sum());
  EXPECT_TRUE(at::equal(GradientOf(got, x), at::full({3}, 2.0, at::kDouble)));
  EXPECT_TRUE(at::equal(inner, y.detach() * 2));
}

TEST(PassTest, StopKeepsNodesFromStarting) {
  const at::Tensor x = Leaf({3});
  bool ran = false;
  x.register_hook([&](const at::Tensor& g) {
    ran = true;
    return g;
  });
  const at::Tensor root = x.sum();
  const NodePtr entry = Send({root});
  Pass pass(Local());
  pass.Reach(All({entry}));
  pass.Stop();
  EXPECT_FALSE(pass.Arrive(entry, {at::ones_like(root)}));
  EXPECT_FALSE(ran);
}

TEST(PassTest, A1_EightSendsFromEightThreads) {
  const at::Tensor x = Leaf({16}), w = Leaf({16});
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> hook_calls{0};
    const at::Tensor h = at::tanh(x * w);
    h.register_hook([&](const at::Tensor& g) {
      ++hook_calls;
      return g;
    });
    std::vector<NodePtr> sends;
    for (int i = 0; i < 8; ++i) sends.push_back(Send({h * double(i + 1), at::sin(h)}));
    Pass pass(Local());
    pass.Reach(All(sends));
    std::vector<std::thread> threads;
    for (const NodePtr& send : sends) {
      threads.emplace_back([&pass, send] {
        const at::Tensor ones = at::ones({16}, at::kDouble);
        EXPECT_FALSE(pass.Arrive(send, {ones, ones}));
      });
    }
    for (auto& thread : threads) thread.join();
    const auto got = pass.Finish();
    const at::Tensor again = at::tanh(x * w);
    const auto wanted = torch::autograd::grad({(again * 36 + 8 * at::sin(again)).sum()}, {x, w});
    EXPECT_EQ(hook_calls, 1);
    EXPECT_LT((GradientOf(got, x) - wanted[0]).abs().max().item<double>(), 1e-12);
    EXPECT_LT((GradientOf(got, w) - wanted[1]).abs().max().item<double>(), 1e-12);
  }
}

}  // namespace
}  // namespace gradwire::autograd
