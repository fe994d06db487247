// Every dtype and layout, there and back.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_lazy_clone.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>

#include "wire/tensor_samples.h"
#include "wire/tensor_table.h"

namespace gradwire::wire {
namespace {

// With `early_memory` storages that come later have memory while tensors are made.
std::vector<at::Tensor> ThereAndBack(const std::vector<at::Tensor>& tensors, size_t inline_limit,
                                     bool early_memory = true) {
  std::string bytes;
  std::vector<BulkSource> bulk;
  const TensorTableWriter writer(tensors, inline_limit);
  writer.Write(bytes, bulk);
  EXPECT_EQ(bytes.size(), writer.byte_size());
  Cursor in(bytes);
  std::vector<BulkTarget> targets;
  Payload payload;
  bool ready = false;
  payload.tensors = ReadTensorTable(in, SIZE_MAX, targets, ready, early_memory ? SIZE_MAX : 0);
  EXPECT_EQ(ready, early_memory || targets.empty());
  in.ExpectEnd();
  Allocate(targets);
  for (size_t i = 0; i < targets.size(); ++i) std::copy_n(bulk[i].data, targets[i].size, targets[i].data);
  CheckArrived(payload);
  return std::move(payload.tensors);
}

// Equal in all that a tensor is, on any dtype: element by element as bytes.
void ExpectSame(const at::Tensor& got, const at::Tensor& sent) {
  ASSERT_EQ(got.defined(), sent.defined());
  if (!sent.defined()) return;
  EXPECT_EQ(got.scalar_type(), sent.scalar_type());
  EXPECT_EQ(got.layout(), sent.layout());
  EXPECT_EQ(got.device(), sent.device());
  ASSERT_EQ(got.sizes(), sent.sizes());
  EXPECT_EQ(got.requires_grad(), sent.requires_grad());
  EXPECT_EQ(got.is_conj(), sent.is_conj());
  EXPECT_EQ(got.is_neg(), sent.is_neg());
  EXPECT_EQ(got.key_set(), sent.key_set());
  if (sent.layout() != at::kStrided) {
    EXPECT_TRUE(got.detach().to_dense().equal(sent.detach().to_dense()));
    return;
  }
  EXPECT_EQ(got.strides(), sent.strides());
  EXPECT_EQ(got.is_contiguous(), sent.is_contiguous());
  EXPECT_EQ(got.is_non_overlapping_and_dense(), sent.is_non_overlapping_and_dense());
  if (sent.is_meta()) {
    EXPECT_EQ(got.storage_offset(), sent.storage_offset());
    return;
  }
  if (sent.is_quantized()) {
    EXPECT_EQ(got.qscheme(), sent.qscheme());
    EXPECT_TRUE(got.dequantize().equal(sent.dequantize()));
    return;
  }
  const size_t width = sent.dtype().itemsize();
  const auto* got_bytes = static_cast<const char*>(got.const_data_ptr());
  const auto* sent_bytes = static_cast<const char*>(sent.const_data_ptr());
  std::vector<int64_t> position(static_cast<size_t>(sent.dim()));
  for (int64_t element = 0; element < sent.numel(); ++element) {
    int64_t rest = element;
    int64_t index = 0;
    for (int64_t d = sent.dim() - 1; d >= 0; --d) {
      index += rest % sent.size(d) * sent.stride(d);
      rest /= sent.size(d);
    }
    const size_t at = static_cast<size_t>(index) * width;
    ASSERT_EQ(std::memcmp(got_bytes + at, sent_bytes + at, width), 0) << "element " << element;
  }
}

void ExpectTravels(const at::Tensor& tensor) {
  for (const size_t inline_limit : {size_t{0}, kInlineLimit}) {
    SCOPED_TRACE(inline_limit);
    ExpectSame(ThereAndBack({tensor}, inline_limit).at(0), tensor);
  }
  SCOPED_TRACE("without memory at first");
  ExpectSame(ThereAndBack({tensor}, 0, /*early_memory=*/false).at(0), tensor);
}

at::Tensor OfBytes(at::ScalarType dtype) {
  at::Tensor tensor = at::empty_strided({3, 5}, {5, 1}, at::TensorOptions().dtype(dtype));
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(dtype == at::kBool ? i % 2 : i * 37 + 11);
  }
  return tensor;
}

TEST(TensorKinds, EveryDtype) {
  int count = 0;
  for (int number = 0; number < static_cast<int>(at::ScalarType::NumOptions); ++number) {
    const auto dtype = static_cast<at::ScalarType>(number);
    if (dtype == at::ScalarType::Undefined || at::isQIntType(dtype)) continue;
    SCOPED_TRACE(at::toString(dtype));
    const at::Tensor tensor = OfBytes(dtype);
    ExpectTravels(tensor);
    ExpectTravels(tensor.t());
    ExpectTravels(tensor.select(0, 1));
    ExpectTravels(tensor.as_strided({}, {}, 3));
    ExpectTravels(tensor.as_strided({0, 4}, {4, 1}, 7));
    ++count;
  }
  EXPECT_GE(count, 40);
}

TEST(TensorKinds, EveryLayout) {
  for (const TensorSample& sample : TensorSamples()) {
    SCOPED_TRACE(sample.name);
    ExpectTravels(sample.make());
  }
}

TEST(TensorKinds, AllInOneMessage) {
  std::vector<at::Tensor> tensors;
  for (const TensorSample& sample : TensorSamples()) tensors.push_back(sample.make());
  const std::vector<at::Tensor> got = ThereAndBack(tensors, 64);
  ASSERT_EQ(got.size(), tensors.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(TensorSamples()[i].name);
    ExpectSame(got[i], tensors[i]);
  }
}

TEST(TensorKinds, SparseKeepsPartsAndFlag) {
  const at::Tensor sent =
      at::sparse_coo_tensor(at::tensor({3, 1, 3}, at::kLong).view({1, 3}), at::tensor({1., 2., 3.}), {5});
  const at::Tensor uncoalesced = ThereAndBack({sent}, kInlineLimit)[0];
  EXPECT_FALSE(uncoalesced.is_coalesced());
  EXPECT_TRUE(uncoalesced._indices().equal(sent._indices()));
  EXPECT_TRUE(uncoalesced._values().equal(sent._values()));
  EXPECT_TRUE(ThereAndBack({sent.coalesce()}, kInlineLimit)[0].is_coalesced());
  const at::Tensor csr = SampleMatrix().to(at::kDouble).to_sparse_csr();
  EXPECT_TRUE(ThereAndBack({csr}, 0)[0].crow_indices().equal(csr.crow_indices()));
}

TEST(TensorKinds, PerChannelKeepsItsQuantizer) {
  const at::Tensor sent =
      at::quantize_per_channel(SampleMatrix(), at::arange(1, 7, at::kDouble), at::arange(6), 1, at::kQInt8);
  const at::Tensor got = ThereAndBack({sent}, 0)[0];
  EXPECT_TRUE(got.q_per_channel_scales().equal(sent.q_per_channel_scales()));
  EXPECT_TRUE(got.q_per_channel_zero_points().equal(sent.q_per_channel_zero_points()));
  EXPECT_EQ(got.q_per_channel_axis(), 1);
}

TEST(TensorKinds, ACopyOnWriteStorageTravelsByValue) {
  at::Tensor base = at::arange(100);
  at::Tensor clone = at::_lazy_clone(base);
  std::string bytes;
  std::vector<BulkSource> bulk;
  TensorTableWriter({clone}, 0).Write(bytes, bulk);
  const at::Tensor expected = at::arange(100);
  base.zero_();
  clone.fill_(-1);  // frees the memory that both had
  EXPECT_EQ(std::memcmp(bulk.at(0).data, expected.const_data_ptr(), bulk[0].size), 0);
}

std::string Refusal(const at::Tensor& tensor) {
  try {
    const std::vector<at::Tensor> tensors = {tensor};
    TensorTableWriter(tensors, kInlineLimit);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.what();
  }
  return "it was taken";
}

void ExpectRefused(const at::Tensor& tensor, const std::string& part) {
  const std::string text = Refusal(tensor);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TensorKinds, WhatCannotTravelSaysWhy) {
  const at::Tensor elsewhere =
      at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                               c10::scalarTypeToTypeMeta(at::kFloat), c10::Device(at::kPrivateUse1, 1));
  ExpectRefused(elsewhere, ":1 cannot travel without a device map; send tensor.cpu()");
  ExpectRefused(at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})}), "nested tensor");
  ExpectRefused(at::ones({4, 4}).to_mkldnn(), "layout Mkldnn");
  ExpectRefused(at::functionalization::impl::to_functional_tensor(at::ones({2})), "Functionalize");
  ExpectRefused(at::_efficientzerotensor({3}), "ZeroTensor");
  ExpectRefused(at::empty({4, 4}, at::TensorOptions(at::kMeta).layout(at::kSparse)), "meta");
  at::Tensor shrunk = at::ones({100});
  shrunk.storage().unsafeGetStorageImpl()->set_nbytes(8);
  ExpectRefused(shrunk, "resized to 8 bytes");
}

TEST(TensorKinds, ASparseTensorThatBreaksItsRulesIsRefusedByItsSender) {
  const at::Tensor coo = at::_sparse_coo_tensor_unsafe(at::tensor({7}, at::kLong).view({1, 1}), at::ones({1}), {5});
  ExpectRefused(coo, "indices are inside its sizes");
  const at::Tensor unsorted =
      at::sparse_coo_tensor(at::tensor({3, 1}, at::kLong).view({1, 2}), at::ones({2}), {5})._coalesced_(true);
  ExpectRefused(unsorted, "sorted");
}

}  // namespace
}  // namespace gradwire::wire
