#include "rpc/interval_set.h"

#include <algorithm>
#include <cassert>

namespace gradwire::rpc {

size_t IntervalSet::FirstEndingAfter(uint64_t byte) const {
  const auto at = std::partition_point(intervals_.begin(), intervals_.end(),
                                       [byte](const Interval& interval) { return interval.end <= byte; });
  return static_cast<size_t>(at - intervals_.begin());
}

bool IntervalSet::Contains(Interval bytes) const {
  const size_t i = FirstEndingAfter(bytes.begin);
  return i < intervals_.size() && intervals_[i].begin <= bytes.begin && bytes.end <= intervals_[i].end;
}

bool IntervalSet::Overlaps(Interval bytes) const {
  const size_t i = FirstEndingAfter(bytes.begin);
  return i < intervals_.size() && intervals_[i].begin < bytes.end;
}

uint64_t IntervalSet::size() const {
  uint64_t size = 0;
  for (const Interval& interval : intervals_) size += interval.end - interval.begin;
  return size;
}

void IntervalSet::Add(Interval bytes) {
  assert(bytes.begin < bytes.end && !Overlaps(bytes));
  const size_t i = FirstEndingAfter(bytes.begin);
  const bool joins_previous = i > 0 && intervals_[i - 1].end == bytes.begin;
  const bool joins_next = i < intervals_.size() && intervals_[i].begin == bytes.end;
  if (joins_previous && joins_next) {
    intervals_[i - 1].end = intervals_[i].end;
    intervals_.erase(intervals_.begin() + i);
  } else if (joins_previous) {
    intervals_[i - 1].end = bytes.end;
  } else if (joins_next) {
    intervals_[i].begin = bytes.begin;
  } else {
    intervals_.insert(intervals_.begin() + i, bytes);
  }
}

void IntervalSet::Remove(Interval bytes) {
  assert(bytes.begin < bytes.end && Contains(bytes));
  const size_t i = FirstEndingAfter(bytes.begin);
  Interval& around = intervals_[i];
  if (around == bytes) {
    intervals_.erase(intervals_.begin() + i);
  } else if (around.begin == bytes.begin) {
    around.begin = bytes.end;
  } else if (around.end == bytes.end) {
    around.end = bytes.begin;
  } else {
    const Interval rest{bytes.end, around.end};
    around.end = bytes.begin;
    intervals_.insert(intervals_.begin() + i + 1, rest);
  }
}

}  // namespace gradwire::rpc
