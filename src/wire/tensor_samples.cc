#include "wire/tensor_samples.h"

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace gradwire::wire {

at::Tensor SampleMatrix() { return at::arange(24, at::kFloat).view({4, 6}).remainder(5); }

namespace {

using Samples = std::vector<TensorSample>;

Samples Strided() {
  return {
      {"undefined", [] { return at::Tensor(); }},
      {"scalar", [] { return at::ones({}); }},
      {"empty", [] { return at::empty({0}); }},
      {"empty, many dimensions",
       [] {
         return at::empty({3, 0, 7}).transpose(0, 2);
       }},
      {"transposed", [] { return SampleMatrix().t(); }},
      {"every second", [] { return SampleMatrix().slice(1, 1, 6, 2); }},
      {"channels last",
       [] {
         return at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
       }},
      {"expanded",
       [] {
         return at::ones({3, 1}).expand({3, 1000});
       }},
      {"overlapping", [] { return at::arange(10).unfold(0, 3, 1); }},
      {"16 dimensions", [] { return at::ones(std::vector<int64_t>(16, 1)); }},
      {"requires grad", [] { return at::randn({3}).set_requires_grad(true); }},
      {"complex, requires grad", [] { return at::randn({3}, at::kComplexFloat).set_requires_grad(true); }},
      {"conjugate",
       [] {
         return at::_conj(at::randn({3, 4}, at::kComplexDouble));
       }},
      {"negative",
       [] {
         return at::_neg_view(at::randn({3, 4}));
       }},
      {"imaginary part of a conjugate",
       [] {
         return at::imag(at::_conj(at::randn({3, 4}, at::kComplexFloat)));
       }},
  };
}

Samples MetaAndQuantized() {
  return {
      {"meta",
       [] {
         return at::empty({1 << 20, 1 << 20}, at::TensorOptions(at::kMeta).dtype(at::kHalf));
       }},
      {"meta view",
       [] {
         return at::empty({8, 8}, at::kMeta).slice(0, 2, 6).t().set_requires_grad(true);
       }},
      {"per tensor", [] { return at::quantize_per_tensor(SampleMatrix(), 0.1, 10, at::kQUInt8); }},
      {"per tensor int32", [] { return at::quantize_per_tensor(SampleMatrix(), 0.5, 0, at::kQInt32).t(); }},
      {"per channel",
       [] {
         return at::quantize_per_channel(SampleMatrix(), at::arange(1, 5, at::kDouble), at::arange(4), 0, at::kQInt8);
       }},
      {"per channel, float zero points",
       [] {
         return at::quantize_per_channel(SampleMatrix(), at::arange(1, 5, at::kFloat), at::arange(4, at::kFloat), 0,
                                         at::kQUInt8);
       }},
      {"per channel, 4 bits",
       [] {
         return at::quantize_per_channel(SampleMatrix(), at::arange(1, 5, at::kFloat), at::arange(4, at::kFloat), 0,
                                         at::kQUInt4x2);
       }},
  };
}

Samples Sparse() {
  return {
      {"sparse", [] { return SampleMatrix().to_sparse(); }},
      {"sparse and dense dimensions",
       [] {
         return at::randn({3, 4, 5}).to_sparse(1).set_requires_grad(true);
       }},
      {"sparse complex",
       [] {
         return at::randn({3, 4}, at::kComplexFloat).to_sparse();
       }},
      {"sparse, uncoalesced",
       [] {
         return at::sparse_coo_tensor(at::tensor({3, 1, 3}, at::kLong).view({1, 3}), at::tensor({1., 2., 3.}), {5});
       }},
      {"sparse, empty",
       [] {
         return at::zeros({3, 4}).to_sparse();
       }},
      {"sparse, size 0",
       [] {
         return at::zeros({3, 0}).to_sparse();
       }},
      {"sparse scalar", [] { return at::ones({}).to_sparse(); }},
      {"CSR", [] { return SampleMatrix().to_sparse_csr(); }},
      {"CSR, batched",
       [] {
         return at::ones({2, 3, 4}).to_sparse_csr().set_requires_grad(true);
       }},
      {"CSR, dense dimension",
       [] {
         return at::randn({3, 4, 5}).to_sparse_csr(1);
       }},
      {"CSC", [] { return SampleMatrix().to_sparse_csc(); }},
      {"BSR",
       [] {
         return SampleMatrix().to_sparse_bsr({2, 3});
       }},
      {"BSC",
       [] {
         return SampleMatrix().to_sparse_bsc({2, 2});
       }},
      {"CSR, empty",
       [] {
         return at::zeros({0, 3}).to_sparse_csr();
       }},
  };
}

}  // namespace

const std::vector<TensorSample>& TensorSamples() {
  static const Samples samples = [] {
    Samples all;
    for (const Samples& some : {Strided(), MetaAndQuantized(), Sparse()})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }();
  return samples;
}

}  // namespace gradwire::wire
