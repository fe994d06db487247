// Contexts and their table: ids, gradients, release and its tombstones (A4, A7).
#include "autograd/context_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

namespace gradwire::autograd {
namespace {

constexpr WorkerId kPeer{2, 9};

TEST(ContextTest, A4_GradientsJoinByAddition) {
  ContextState context(1);
  const at::Tensor leaf = at::zeros({2}).set_requires_grad(true);
  const at::Tensor first = at::full({2}, 3.0);
  context.Join({{leaf, first}});
  EXPECT_EQ(context.gradient(leaf).data_ptr(), first.data_ptr()) << "the first is moved in";
  context.Join({{leaf, at::full({2}, 4.0)}});
  EXPECT_TRUE(at::equal(context.gradient(leaf), at::full({2}, 7.0)));
  EXPECT_EQ(context.gradients().size(), 1u);
  EXPECT_FALSE(leaf.grad().defined());
}

TEST(ContextTest, SparseAndDenseGradientsJoin) {
  ContextState context(1);
  const at::Tensor leaf = at::zeros({3}).set_requires_grad(true);
  const at::Tensor sparse =
      at::sparse_coo_tensor(at::tensor({1}, at::kLong).view({1, 1}), at::tensor({5.0F}), {3}, at::kFloat);
  context.Join({{leaf, sparse}});
  context.Join({{leaf, sparse.clone()}});
  EXPECT_TRUE(context.gradient(leaf).is_sparse());
  context.Join({{leaf, at::ones({3})}});
  EXPECT_TRUE(at::equal(context.gradient(leaf), at::tensor({1.0F, 11.0F, 1.0F})));
}

TEST(ContextTest, A1_AnotherLifeOfAWorkerGivesOtherIds) {
  std::set<ContextId> ids;
  for (const uint32_t life : {1u, 2u, 0xFFFFFFFFu}) {
    ContextTable table({3, life});
    for (int i = 0; i < 100; ++i) {
      const ContextId id = table.New()->id();
      EXPECT_TRUE(ids.insert(id).second);
      EXPECT_EQ(ContextTable::CreatorOf(id), 3u);
      EXPECT_LT(id, table.max_id());
    }
  }
}

TEST(ContextTest, A7_AClosedContextRecordsNothing) {
  ContextState context(1);
  const at::Tensor leaf = at::zeros({2}).set_requires_grad(true);
  const MessageId message{kPeer, 1};
  EXPECT_TRUE(context.AddPeer(kPeer));
  EXPECT_TRUE(context.AddSend(message, c10::make_intrusive<SendBackward>(TensorList{leaf})));
  EXPECT_TRUE(context.FindSend(message));
  ContextState::Contents rest;
  EXPECT_EQ(context.Close(rest), std::set<WorkerId>{kPeer});
  EXPECT_EQ(rest.sends.size(), 1u);
  EXPECT_TRUE(context.closed());
  EXPECT_FALSE(context.AddPeer(kPeer));
  EXPECT_FALSE(context.AddSend(message, c10::make_intrusive<SendBackward>(TensorList{leaf})));
  EXPECT_FALSE(context.FindSend(message));
  context.Join({{leaf, at::ones({2})}});
  EXPECT_TRUE(context.gradients().empty());
}

TEST(ContextTableTest, IdsSayWhoMadeThem) {
  ContextTable table({3, 1});
  const ContextId first = table.New()->id(), second = table.New()->id();
  EXPECT_EQ(first >> 48, 3);
  EXPECT_EQ(second, first + 1);
  EXPECT_EQ(ContextTable::CreatorOf(second), 3u);
  EXPECT_EQ(table.max_id(), 281474976710655 + (int64_t{3} << 48));
}

TEST(ContextTableTest, A7_ReleaseTakesItOutAtOnceWhenNothingRuns) {
  ContextTable table({0, 1});
  const ContextId id = table.New()->id();
  EXPECT_TRUE(table.Find(id));
  EXPECT_TRUE(table.Release(id));
  EXPECT_FALSE(table.Find(id));
  EXPECT_FALSE(table.Release(id));
  EXPECT_EQ(table.tombstones(), 0u);
}

TEST(ContextTableTest, A7_RunningHandlersKeepATombstone) {
  ContextTable table({0, 1});
  const ContextId id = ContextId{4} << 48;  // another worker's
  const auto first = table.Enter(id, 4);
  EXPECT_EQ(table.Enter(id, 4), first);
  EXPECT_TRUE(table.Release(id));
  EXPECT_EQ(table.tombstones(), 1u);
  EXPECT_TRUE(table.ids().empty());
  EXPECT_FALSE(table.Enter(id, 4)) << "a late call in it runs without";
  for (int i = 0; i < 3; ++i) table.Leave(id);
  EXPECT_EQ(table.tombstones(), 0u);
}

TEST(ContextTableTest, A7_ALateCallDoesNotBringBackAnOwnContext) {
  ContextTable table({4, 1});
  const ContextId id = table.New()->id();
  table.Release(id);
  EXPECT_FALSE(table.Enter(id, 1));
  table.Leave(id);
  EXPECT_EQ(table.tombstones(), 0u);
}

TEST(ContextTableTest, A7_ADeathOrphansWhatTheDeadMadeAndStraysWhatTheyBrought) {
  ContextTable table({0, 1});
  const ContextId own = table.New()->id();
  const ContextId made = (ContextId{4} << 48) + 2, brought = (ContextId{5} << 48) + 2;
  table.Enter(own, 4);
  table.Enter(made, 6);
  table.Enter(brought, 4);
  table.Enter(brought, 6);
  using Ids = std::vector<ContextId>;
  const auto of_4 = table.PeerGone(4);
  EXPECT_EQ(of_4.orphans, Ids{made});
  EXPECT_EQ(of_4.strays, Ids{brought}) << "others that brought it, too, may be strays themselves";
  const auto of_7 = table.PeerGone(7);
  EXPECT_EQ(of_7.orphans, Ids{});
  EXPECT_EQ(of_7.strays, Ids{});
  table.Release(made);
  EXPECT_EQ(table.PeerGone(6).strays, Ids{brought});
}

}  // namespace
}  // namespace gradwire::autograd
