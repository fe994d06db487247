#include "wire/tensor_table.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace gradwire::wire {
namespace {

struct Sent {
  std::string bytes;
  std::vector<BulkSource> bulk;
};

Sent Send(const std::vector<at::Tensor>& tensors, size_t inline_limit = kInlineLimit) {
  Sent sent;
  const TensorTableWriter writer(tensors, inline_limit);
  writer.Write(sent.bytes, sent.bulk);
  EXPECT_EQ(sent.bytes.size(), writer.byte_size());
  return sent;
}

std::vector<at::Tensor> Receive(const Sent& sent) {
  Cursor in(sent.bytes);
  std::vector<BulkTarget> targets;
  bool ready = false;
  std::vector<at::Tensor> tensors = ReadTensorTable(in, SIZE_MAX, targets, ready);
  EXPECT_TRUE(ready);
  in.ExpectEnd();
  EXPECT_EQ(targets.size(), sent.bulk.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(targets[i].size, sent.bulk[i].size);
    std::copy_n(sent.bulk[i].data, targets[i].size, targets[i].data);
  }
  return tensors;
}

size_t StorageBytes(const at::Tensor& tensor) { return tensor.storage().nbytes(); }

TEST(TensorTable, SmallViewShipsOnlyWhatItCovers) {
  const at::Tensor base = at::arange(1000000);
  const at::Tensor view = base.slice(0, 500, 502);
  const Sent sent = Send({view});
  EXPECT_LT(sent.bytes.size(), 100u);
  const at::Tensor got = Receive(sent)[0];
  EXPECT_TRUE(got.equal(view));
  EXPECT_EQ(StorageBytes(got), 16u);
}

TEST(TensorTable, ViewsOfOneStorageShareItOnArrival) {
  const at::Tensor base = at::zeros({8});
  for (const size_t inline_limit : {kInlineLimit, size_t{0}}) {
    const auto got =
        Receive(Send({base.slice(0, 0, 8, 2), base.slice(0, 1, 8, 2), base.slice(0, 2, 4), base}, inline_limit));
    got[3].fill_(3);
    EXPECT_TRUE(got[0].equal(at::full({4}, 3.0f)));
    EXPECT_TRUE(got[1].equal(at::full({4}, 3.0f)));
    got[2].fill_(5);
    EXPECT_EQ(got[0][1].item<float>(), 5);
    EXPECT_EQ(base.sum().item<float>(), 0);  // nothing is aliased with the sender's
  }
}

// As of a function that returns several views of one tensor.
TEST(TensorTable, ViewsThatOverlapAreChangedTogetherOrNotAtAll) {
  const at::Tensor base = at::ones({8}).set_requires_grad(true) * 1;
  const auto got = Receive(Send({base, base.slice(0, 2, 4), base.detach().slice(0, 3, 5), at::ones({8})}));
  const auto version = got[0]._version();
  got[2].zero_();
  EXPECT_GT(got[0]._version(), version) << "what a backward pass needs has changed";
  EXPECT_EQ(got[3]._version(), 0);
  const at::Tensor weight = at::ones({2}).set_requires_grad(true);
  for (const size_t changed : {0, 1, 2}) {
    EXPECT_THROW(got[changed].slice(0, 0, 2).mul_(weight), c10::Error) << "its gradient would be missed in the others";
  }
  EXPECT_TRUE(got[1].requires_grad());
  EXPECT_FALSE(got[2].requires_grad());
}

TEST(TensorTable, ViewsThatOnlyTouchAreApart) {
  const at::Tensor base = at::zeros({8});
  const auto got = Receive(Send({base.slice(0, 0, 4), base.slice(0, 4, 8)}));
  got[0].mul_(at::ones({4}).set_requires_grad(true));
  EXPECT_TRUE(got[0].requires_grad());
  EXPECT_FALSE(got[1].requires_grad());
}

TEST(TensorTable, ViewsFarApartDoNotDragTheirStorageAlong) {
  const at::Tensor base = at::arange(1000000);
  const Sent sent = Send({base.slice(0, 0, 2), base.slice(0, 999998)});
  EXPECT_LT(sent.bytes.size(), 200u);
  const auto got = Receive(sent);
  EXPECT_EQ(got[1][1].item<int64_t>(), 999999);
}

TEST(TensorTable, ViewsOfDifferentTypesKeepTheirPlaces) {
  const at::Tensor base = at::arange(16, at::kFloat);
  const at::Tensor floats = base.slice(0, 3, 6);                     // bytes 12 to 24
  const at::Tensor doubles = base.slice(0, 4, 8).view(at::kDouble);  // bytes 16 to 32
  const auto got = Receive(Send({floats, doubles}));
  EXPECT_TRUE(got[0].equal(floats));
  EXPECT_TRUE(got[1].equal(doubles));
  got[1].zero_();
  EXPECT_EQ(got[0].sum().item<float>(), 3);
}

TEST(TensorTable, ExpandedShipsOneElement) {
  const at::Tensor expanded = at::ones({1}).expand({1000000});
  const Sent sent = Send({expanded});
  EXPECT_LT(sent.bytes.size(), 100u);
  const at::Tensor got = Receive(sent)[0];
  EXPECT_EQ(got.strides(), expanded.strides());
  EXPECT_TRUE(got.equal(expanded));
}

TEST(TensorTable, LargeOnesAreKeptAliveByReference) {
  Sent sent;
  {
    const at::Tensor temporary = at::arange(10000);
    sent = Send({temporary});
  }
  EXPECT_TRUE(Receive(sent)[0].equal(at::arange(10000)));
}

TEST(TensorTable, TheInlineLimitItselfGoesApart) {
  EXPECT_EQ(Send({at::zeros({4})}, 16).bulk.size(), 1u);
  EXPECT_EQ(Send({at::zeros({4})}, 17).bulk.size(), 0u);
}

TEST(TensorTable, ALeafArrivesForLeafAndNonLeaf) {
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  const auto got = Receive(Send({leaf, leaf.mul(2), leaf.detach()}));
  EXPECT_TRUE(got[0].requires_grad() && got[0].is_leaf());
  EXPECT_TRUE(got[1].requires_grad() && got[1].is_leaf());
  EXPECT_FALSE(got[2].requires_grad());
}

TEST(TensorTable, ReceivedMemoryIsAlignedForVectors) {
  for (const auto& tensor : Receive(Send({at::ones({3}, at::kByte), at::ones({5}, at::kComplexDouble)}))) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64, 0u);
  }
}

}  // namespace
}  // namespace gradwire::wire
