// IntervalSet: which bytes of one storage are missing, under way or here.
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/util/SmallVector.h>

namespace gradwire::rpc {

// Bytes [begin, end), never empty.
struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// A set of bytes as intervals in rising order that neither overlap nor touch. Pieces come nearly in order, so there are
// one or two intervals as a rule, and those stand in the object itself.
class IntervalSet {
 public:
  IntervalSet() = default;
  explicit IntervalSet(Interval all) { Add(all); }

  bool empty() const { return intervals_.empty(); }
  Interval first() const { return intervals_.front(); }  // REQUIRES: not empty
  bool Contains(Interval bytes) const;
  bool Overlaps(Interval bytes) const;
  uint64_t size() const;  // bytes in all

  void Add(Interval bytes);     // REQUIRES: does not overlap the set
  void Remove(Interval bytes);  // REQUIRES: the set contains it
  void Clear() { intervals_.clear(); }

  auto begin() const { return intervals_.begin(); }
  auto end() const { return intervals_.end(); }
  bool operator==(const IntervalSet& other) const { return intervals_ == other.intervals_; }

 private:
  size_t FirstEndingAfter(uint64_t byte) const;

  c10::SmallVector<Interval, 2> intervals_;
};

}  // namespace gradwire::rpc
