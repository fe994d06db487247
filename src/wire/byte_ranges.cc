#include "wire/byte_ranges.h"

#include <algorithm>
#include <tuple>

namespace gradwire::wire {
namespace {

void Align(ByteRange& group) { group.begin -= group.begin % group.alignment; }

}  // namespace

RangeGroups JoinRanges(std::span<ByteRange> ranges) {
  RangeGroups groups;
  if (ranges.size() == 1) {  // no order to find out
    ranges[0].group = 0;
    groups.push_back(ranges[0]);
    Align(groups[0]);
    return groups;
  }

  c10::SmallVector<uint32_t, 8> order;
  for (uint32_t i = 0; i < ranges.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(ranges[a].storage, ranges[a].begin, a) < std::tie(ranges[b].storage, ranges[b].begin, b);
  });
  RangeGroups joined;  // in order of address
  for (const uint32_t i : order) {
    ByteRange& range = ranges[i];
    if (joined.empty() || joined.back().storage != range.storage || joined.back().end < range.begin) {
      joined.push_back(range);
    } else {
      joined.back().end = std::max(joined.back().end, range.end);
      joined.back().alignment = std::max(joined.back().alignment, range.alignment);
    }
    range.group = static_cast<uint32_t>(joined.size() - 1);
  }

  // Addresses differ from run to run; the message must not.
  constexpr uint32_t kUnnumbered = UINT32_MAX;
  c10::SmallVector<uint32_t, 8> numbers(joined.size(), kUnnumbered);
  for (ByteRange& range : ranges) {
    uint32_t& number = numbers[range.group];
    if (number == kUnnumbered) {
      number = static_cast<uint32_t>(groups.size());
      groups.push_back(joined[range.group]);
      Align(groups.back());
    }
    range.group = number;
  }
  return groups;
}

}  // namespace gradwire::wire
