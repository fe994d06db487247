#include "wire/byte_ranges.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradwire::wire {
namespace {

const int kStorageA = 0;
const int kStorageB = 0;

std::vector<std::pair<uint64_t, uint64_t>> Bounds(const RangeGroups& groups) {
  std::vector<std::pair<uint64_t, uint64_t>> bounds;
  for (const ByteRange& group : groups) bounds.emplace_back(group.begin, group.end);
  return bounds;
}

using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(ByteRanges, NothingMakesNothing) { EXPECT_TRUE(JoinRanges({}).empty()); }

TEST(ByteRanges, OverlapAndTouchJoinAndAGapSeparates) {
  std::vector<ByteRange> ranges = {
      {&kStorageA, 100, 200}, {&kStorageA, 300, 400}, {&kStorageA, 200, 250}, {&kStorageA, 120, 130}};
  const RangeGroups groups = JoinRanges(ranges);
  EXPECT_EQ(Bounds(groups), (Pairs{{100, 250}, {300, 400}}));
  EXPECT_EQ(ranges[0].group, 0u);
  EXPECT_EQ(ranges[1].group, 1u);
  EXPECT_EQ(ranges[2].group, 0u);
  EXPECT_EQ(ranges[3].group, 0u);
}

TEST(ByteRanges, GroupsAreNumberedInOrderOfAppearanceWhateverTheAddresses) {
  const void* lower = std::min<const void*>(&kStorageA, &kStorageB);
  const void* upper = std::max<const void*>(&kStorageA, &kStorageB);
  for (const auto& [first, second] : {std::pair{lower, upper}, std::pair{upper, lower}}) {
    std::vector<ByteRange> ranges = {{first, 64, 72}, {second, 0, 8}, {first, 0, 8}, {second, 4, 12}};
    EXPECT_EQ(Bounds(JoinRanges(ranges)), (Pairs{{64, 72}, {0, 12}, {0, 8}}));
  }
}

TEST(ByteRanges, AGroupBeginsWhereAllItsMembersAreAligned) {
  std::vector<ByteRange> ranges = {{&kStorageA, 12, 20, 4}, {&kStorageA, 16, 32, 8}};
  EXPECT_EQ(Bounds(JoinRanges(ranges)), (Pairs{{8, 32}}));
  std::vector<ByteRange> one = {{&kStorageA, 12, 20, 4}};
  EXPECT_EQ(Bounds(JoinRanges(one)), (Pairs{{12, 20}}));
}

}  // namespace
}  // namespace gradwire::wire
