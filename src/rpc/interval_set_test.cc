#include "rpc/interval_set.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gradwire::rpc {
namespace {

std::vector<Interval> Intervals(const IntervalSet& set) { return {set.begin(), set.end()}; }

TEST(IntervalSet, WhatTouchesIsJoined) {
  IntervalSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  EXPECT_EQ(Intervals(set), (std::vector<Interval>{{10, 20}, {30, 40}}));
  set.Add({20, 30});
  EXPECT_EQ(Intervals(set), (std::vector<Interval>{{10, 40}}));
  set.Add({0, 10});
  set.Add({40, 41});
  EXPECT_EQ(Intervals(set), (std::vector<Interval>{{0, 41}}));
}

TEST(IntervalSet, WhatIsTakenOutOfTheMiddleLeavesBothEnds) {
  IntervalSet set({0, 100});
  set.Remove({40, 60});
  set.Remove({0, 10});
  set.Remove({90, 100});
  EXPECT_EQ(Intervals(set), (std::vector<Interval>{{10, 40}, {60, 90}}));
  set.Remove({60, 90});
  EXPECT_EQ(Intervals(set), (std::vector<Interval>{{10, 40}}));
}

// Against a row of bits.
TEST(IntervalSet, DoesWhatASetOfBytesDoes) {
  constexpr uint64_t kBytes = 48;
  std::mt19937_64 random(1);
  IntervalSet set;
  std::vector<bool> bits(kBytes);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t begin = random() % kBytes;
    const uint64_t end = begin + 1 + random() % (kBytes - begin);
    size_t there = 0;
    for (uint64_t byte = begin; byte < end; ++byte) there += bits[byte];
    ASSERT_EQ(set.Contains({begin, end}), there == end - begin);
    ASSERT_EQ(set.Overlaps({begin, end}), there > 0);
    if (there == 0) {
      set.Add({begin, end});
    } else if (there == end - begin) {
      set.Remove({begin, end});
    } else {
      continue;
    }
    std::fill(bits.begin() + static_cast<ptrdiff_t>(begin), bits.begin() + static_cast<ptrdiff_t>(end), there == 0);
    size_t size = 0;
    for (const bool bit : bits) size += bit;
    ASSERT_EQ(set.size(), size);
    uint64_t last_end = 0;
    for (const Interval& interval : set) {
      ASSERT_LT(interval.begin, interval.end);
      ASSERT_TRUE(last_end == 0 || last_end < interval.begin) << "they overlap or touch";
      last_end = interval.end;
    }
  }
}

}  // namespace
}  // namespace gradwire::rpc
