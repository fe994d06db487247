#include "wire/tensor_record.h"

#include <string>

#include "wire/cursor.h"

namespace gradwire::wire {

// The numbers that docs/wire.md lists.
static_assert(static_cast<int>(c10::ScalarType::Byte) == 0 && static_cast<int>(c10::ScalarType::Bool) == 11 &&
              static_cast<int>(c10::ScalarType::BFloat16) == 15 &&
              static_cast<int>(c10::ScalarType::Float8_e4m3fnuz) == 26 &&
              static_cast<int>(c10::ScalarType::UInt64) == 29 && static_cast<int>(c10::ScalarType::Int7) == 43 &&
              static_cast<int>(c10::ScalarType::Float4_e2m1fn_x2) == 45);

c10::ScalarType CheckDtype(uint8_t number) {
  const auto dtype = static_cast<c10::ScalarType>(number);
  if (number >= static_cast<uint8_t>(c10::ScalarType::NumOptions) || dtype == c10::ScalarType::Undefined) {
    ThrowInvalid("tensor of unknown dtype number " + std::to_string(number));
  }
  return dtype;
}

uint64_t BitsPerElement(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::QUInt4x2: return 4;
    case c10::ScalarType::QUInt2x4: return 2;
    default: return 8 * c10::elementSize(dtype);
  }
}

int64_t CoveredElements(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t count = 1;
  int64_t last = 0;
  bool empty = false;
  bool too_large = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = sizes[i];
    const int64_t stride = strides[i];
    if (size < 0 || stride < 0) ThrowInvalid("tensor with a negative size or stride");
    if (size == 0) {
      empty = true;
      continue;
    }
    int64_t span = 0;
    too_large |= __builtin_mul_overflow(count, size, &count);
    too_large |= __builtin_mul_overflow(size - 1, stride, &span);
    too_large |= __builtin_add_overflow(last, span, &last);
  }
  too_large |= __builtin_add_overflow(last, 1, &last);
  if (too_large) ThrowInvalid("tensor of more than 2^63 - 1 elements");
  return empty ? 0 : last;
}

uint64_t EndByte(uint64_t offset, uint64_t covered, uint64_t bits_per_element) {
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, covered, &end) || __builtin_mul_overflow(end, bits_per_element, &end) ||
      __builtin_add_overflow(end, 7, &end)) {
    ThrowInvalid("tensor that ends beyond 2^61 bytes");
  }
  return end / 8;
}

}  // namespace gradwire::wire
