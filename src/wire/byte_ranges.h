// Which bytes of which storages a message ships: the ranges that its tensors cover, joined where they overlap or touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <c10/util/SmallVector.h>

namespace gradwire::wire {

// Bytes [begin, end), not empty, of one storage, as one tensor covers them.
struct ByteRange {
  const void* storage = nullptr;  // its identity
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t alignment = 1;  // of `begin`; a power of two
  uint32_t group = 0;      // set by JoinRanges: index in what it returns
};

// The joined ranges, numbered in order of first appearance. Each begins at a multiple of the alignments of its members.
using RangeGroups = c10::SmallVector<ByteRange, 4>;
RangeGroups JoinRanges(std::span<ByteRange> ranges);

}  // namespace gradwire::wire
