// What tensor_write.cc and tensor_read.cc agree on: kinds and flags of tensor records (docs/wire.md, "Tensors"), and
// the one rule for sizes and strides, applied before sending and after receiving.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace gradwire::wire {

enum class TensorKind : uint8_t {
  kUndefined = 0,
  kStrided = 1,
  kMeta = 2,
  kPerTensor = 3,   // quantized
  kPerChannel = 4,  // quantized
  kCoo = 5,
  kCsr = 6,
  kCsc = 7,
  kBsr = 8,
  kBsc = 9,
};

namespace flag {
inline constexpr uint8_t kRequiresGrad = 1;
inline constexpr uint8_t kConj = 2;
inline constexpr uint8_t kNeg = 4;
inline constexpr uint8_t kCoalesced = 8;  // of kCoo
}  // namespace flag

inline constexpr uint32_t kNoStorage = UINT32_MAX;

// A type's number on the wire is libtorch's. Throws Error(kInvalid) for a number that is no type.
c10::ScalarType CheckDtype(uint8_t number);

// 4 and 2 for the packed quantized types, else 8 times the element size.
uint64_t BitsPerElement(c10::ScalarType dtype);

// How many elements of its storage the tensor spans from its first one: 1 + sum((size - 1) * stride), or 0 when it has
// none. Throws Error(kInvalid) for negative numbers and for more than 2^63 - 1 of anything.
int64_t CoveredElements(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// The end, in bytes, of `covered` elements from element `offset` on. Throws Error(kInvalid) when it has no number.
uint64_t EndByte(uint64_t offset, uint64_t covered, uint64_t bits_per_element);

}  // namespace gradwire::wire
