// What calls record (AutogradInterceptor), and how contexts end on all workers (A7).
#include <gtest/gtest.h>

#include "autograd/cut_history.h"
#include "autograd/protocol.h"
#include "autograd/test_network.h"
#include "autograd/test_tensors.h"

namespace gradwire::autograd {
namespace {

TEST(RecordingTest, A7_ReleaseFollowsTheCallsOfTheContext) {
  TestNetwork network(4);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {x}, [&](TensorList args) {
      return network.Call(1, 2, args, [&](TensorList deeper) {
        network.Call(2, 1, {at::ones({2})}, [](TensorList) { return TensorList{}; });  // and back
        return deeper;
      });
    });
  }
  EXPECT_TRUE(network.table(2).Find(context)) << "calls without grad tensors carry it too";
  EXPECT_FALSE(network.table(3).Find(context));
  EXPECT_TRUE(network.at(0).Release(context));
  EXPECT_FALSE(network.at(0).Release(context));
  network.Settle();
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(network.table(rank).Find(context)) << rank;
    EXPECT_EQ(network.table(rank).tombstones(), 0u) << rank;
  }
}

TEST(RecordingTest, A7_ARunningHandlerKeepsATombstoneAndItsLaterCallsCarryNoContext) {
  TestNetwork network(3);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {x}, [&](TensorList args) {
      network.at(0).Release(context);
      network.Settle();
      EXPECT_FALSE(network.table(1).Find(context));
      EXPECT_EQ(network.table(1).tombstones(), 1u);
      network.Call(1, 2, args, [](TensorList deeper) { return deeper; });
      EXPECT_FALSE(network.table(2).Find(context));
      return args;
    });
  }
  network.Settle();
  EXPECT_EQ(network.table(1).tombstones(), 0u);
}

TEST(RecordingTest, A7_ACallThatTheReleaseOvertookIsReleasedWhenItEnds) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4});
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {x}, [&](TensorList args) {
      network.table(1).Release(context);
      network.table(1).Leave(context);  // as if the release had come before this call's header
      network.table(1).Enter(context, 0);
      network.at(0).Release(context);
      return args;
    });
  }
  network.Settle();
  EXPECT_FALSE(network.table(1).Find(context));
}

TEST(RecordingTest, A7_TheDeathOfItsMakerReleasesAContext) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {Leaf({4})}, [](TensorList args) { return args; });
  }
  ASSERT_TRUE(network.table(1).Find(context));
  network.Kill(0);
  network.at(1).OnPeerEnded(TestNetwork::IdOf(0), {.code = ErrorCode::kDisconnected, .text = "worker 'w0' has left"});
  network.at(1).OnPeerDrained(TestNetwork::IdOf(0));
  EXPECT_FALSE(network.table(1).Find(context));
}

// The lost one has brought the context to two others, who call each other in it.
TEST(RecordingTest, A7_WhatALostWorkerHasPassedOnIsReleasedByItsMaker) {
  TestNetwork network(4);
  const ContextId context = network.NewContext(0);
  const auto pass_on = [&](size_t from, size_t to, auto next) {
    return [&network, from, to, next](TensorList args) { return network.Call(from, to, std::move(args), next); };
  };
  const auto last = [](TensorList args) { return args; };
  {
    const InContext scope(network, 0, context);
    network.Call(0, 1, {Leaf({4})}, pass_on(1, 2, pass_on(2, 3, pass_on(3, 2, last))));
  }
  network.Kill(1);
  for (const size_t rank : {0, 2, 3}) {
    network.at(rank).OnPeerEnded(TestNetwork::IdOf(1), {.code = ErrorCode::kDisconnected, .text = "w1 is lost"});
    network.at(rank).OnPeerDrained(TestNetwork::IdOf(1));
  }
  network.Settle();
  for (const size_t rank : {2, 3}) EXPECT_TRUE(network.table(rank).Find(context)) << "its gradients may be wanted";
  network.at(0).Release(context);
  network.Settle();
  for (const size_t rank : {0, 2, 3}) EXPECT_FALSE(network.table(rank).Find(context)) << "rank " << rank;
}

TEST(RecordingTest, CallsWithoutGradientModeRecordNothing) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  const at::Tensor x = Leaf({4}), w = Leaf({4});
  const InContext scope(network, 0, context);
  at::Tensor result;
  {
    const at::AutoGradMode no_grad(false);
    result = network.Call(0, 1, {x}, [&](TensorList args) {
      const at::AutoGradMode grad(true);
      return TensorList{args[0] * w};
    })[0];
  }
  EXPECT_TRUE(result.is_leaf());
  EXPECT_TRUE(network.table(1).Find(context)) << "but the context is there";
  EXPECT_TRUE(network.table(0).Find(context)->sends().empty());
  EXPECT_TRUE(network.table(1).Find(context)->sends().empty());
}

TEST(RecordingTest, AMessageThatDoesNotKeepItsWordIsRefused) {
  TestNetwork network(1);
  AutogradInterceptor& interceptor = network.at(0).interceptor();
  const ContextExtension extension{.context = ContextId{5} << 48, .message = MessageId{{5, 5}, 3}, .tensor_count = 2};
  wire::Request request{.call_id = 1, .function = "f", .extensions = {Encode(extension)}};
  request.args.tensors = {at::ones({1}).set_requires_grad(true)};
  const rpc::Peer peer{{5, 5}, "p"};
  {
    CallState state;
    rpc::ServedCall call{peer, request, state};
    interceptor.OnHeader(call);
    EXPECT_THROW(interceptor.OnDispatch(call), Error);
  }
  for (size_t length = 0; length < request.extensions[0].bytes.size(); ++length) {
    std::vector<wire::Extension> cut = request.extensions;
    cut[0].bytes.resize(length);
    if (length == 9) cut[0].bytes[0] = 2;  // says that more follows
    EXPECT_THROW(FindContextExtension(cut), Error) << length;
  }
}

TEST(RecordingTest, NodesListWhatRequiresGradInTheOrderOfTheCall) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  const at::Tensor a = Leaf({2}), plain = at::ones({3}), b = Leaf({4});
  const InContext scope(network, 0, context);
  const TensorList result = network.Call(0, 1, {a, plain, b}, [](TensorList args) {
    EXPECT_FALSE(args[1].requires_grad());
    EXPECT_EQ(args[0].grad_fn(), args[2].grad_fn());
    EXPECT_EQ(args[2].output_nr(), 1u);
    return TensorList{args[0], args[1]};
  });
  const auto here = network.table(0).Find(context), there = network.table(1).Find(context);
  ASSERT_EQ(here->sends().size(), 1u);
  ASSERT_EQ(here->recvs().size(), 1u);
  const SendPtr send = here->sends()[0].second;
  ASSERT_EQ(send->num_outputs(), 2u);
  EXPECT_EQ(send->next_edge(0).function, torch::autograd::impl::gradient_edge(a).function);
  EXPECT_EQ(send->next_edge(1).function, torch::autograd::impl::gradient_edge(b).function);
  EXPECT_EQ(here->sends()[0].first, there->recvs()[0].first) << "the pair shares its id";
  EXPECT_EQ(here->recvs()[0].first, there->sends()[0].first);
  EXPECT_EQ(result[0].grad_fn().get(), here->recvs()[0].second.get());
  EXPECT_EQ(here->peers(), std::set<WorkerId>{TestNetwork::IdOf(1)});
}

TEST(RecordingTest, OutsideOfContextsNothingIsRecorded) {
  TestNetwork network(2);
  const TensorList result = network.Call(0, 1, {Leaf({2})}, [](TensorList args) { return args; });
  EXPECT_TRUE(result[0].is_leaf());
  EXPECT_TRUE(result[0].requires_grad());
  EXPECT_TRUE(network.table(1).ids().empty());
}

TEST(RecordingTest, AHistoryThatEndsAtACallOutsideIsNotMissedInSilence) {
  const at::Tensor plain = at::ones({1}), leaf = Leaf({1});
  EXPECT_EQ(WithHistory({plain, leaf, leaf * 2, leaf, leaf + 1}), (std::vector<uint32_t>{1, 3}));
  const ContextExtension extension{.context = static_cast<ContextId>(WorkerId{3, 9}.packed()), .cut = {1, 3}};
  const wire::Extension bytes = Encode(extension);
  const auto read = FindContextExtension({bytes});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->context, extension.context);
  EXPECT_EQ(read->cut, extension.cut);
  for (size_t length = 0; length < bytes.bytes.size(); ++length) {
    wire::Extension shorter = bytes;
    shorter.bytes.resize(length);
    if (length == bytes.bytes.size() - 4) continue;  // one number less
    EXPECT_THROW(FindContextExtension({shorter}), Error) << length;
  }
  EXPECT_THROW(NoteCut({plain, leaf}, {1}, {3, 9}), Error);

  TestNetwork network(2);
  const TensorList result = network.Call(0, 1, {Leaf({2})}, [](TensorList args) { return TensorList{args[0] * 2}; });
  EXPECT_TRUE(result[0].is_leaf());
  result[0].sum().backward();
  EXPECT_EQ(result[0].grad().sum().item<float>(), 2) << "local autograd takes no notice";
  const ContextId context = network.NewContext(0);
  try {
    network.at(0).Backward(context, {result[0].sum()}, false);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_NE(error.failure().text.find("worker 1 has computed"), std::string::npos) << error.failure().text;
  }
}

TEST(RecordingTest, EachWorkerOfAProcessHasItsOwnCurrentContext) {
  TestNetwork network(2);
  const ContextId context = network.NewContext(0);
  {
    const InContext scope(network, 0, context);
    EXPECT_EQ(network.at(0).interceptor().current().get()->id(), context);
    EXPECT_EQ(network.at(1).interceptor().current().get(), nullptr);
    const ContextId inner = network.NewContext(0);
    {
      const InContext deeper(network, 0, inner);
      EXPECT_EQ(network.at(0).interceptor().current().get()->id(), inner);
    }
    EXPECT_EQ(network.at(0).interceptor().current().get()->id(), context);
  }
  EXPECT_EQ(network.at(0).interceptor().current().get(), nullptr);
}

}  // namespace
}  // namespace gradwire::autograd
