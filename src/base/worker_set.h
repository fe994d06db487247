// WorkerSet: a set of workers, in the order of their seniority: the lower id stands first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "base/ids.h"

namespace gradwire {

// A sorted vector: groups are small, and sets are mostly read.
class WorkerSet {
 public:
  WorkerSet() = default;
  WorkerSet(std::initializer_list<WorkerId> workers) {
    for (const WorkerId& worker : workers) insert(worker);
  }

  bool empty() const { return workers_.empty(); }
  size_t size() const { return workers_.size(); }
  auto begin() const { return workers_.begin(); }
  auto end() const { return workers_.end(); }
  // The most senior one. REQUIRES: not empty.
  WorkerId front() const { return workers_.front(); }
  bool contains(WorkerId worker) const { return std::binary_search(workers_.begin(), workers_.end(), worker); }

  void insert(WorkerId worker) {
    const auto at = std::lower_bound(workers_.begin(), workers_.end(), worker);
    if (at == workers_.end() || *at != worker) workers_.insert(at, worker);
  }
  void erase(WorkerId worker) {
    const auto at = std::lower_bound(workers_.begin(), workers_.end(), worker);
    if (at != workers_.end() && *at == worker) workers_.erase(at);
  }

  // Union, intersection, difference.
  friend WorkerSet operator|(const WorkerSet& a, const WorkerSet& b) {
    WorkerSet result;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.workers_));
    return result;
  }
  friend WorkerSet operator&(const WorkerSet& a, const WorkerSet& b) {
    WorkerSet result;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.workers_));
    return result;
  }
  friend WorkerSet operator-(const WorkerSet& a, const WorkerSet& b) {
    WorkerSet result;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result.workers_));
    return result;
  }
  WorkerSet& operator|=(const WorkerSet& other) { return *this = *this | other; }
  WorkerSet& operator&=(const WorkerSet& other) { return *this = *this & other; }
  WorkerSet& operator-=(const WorkerSet& other) { return *this = *this - other; }
  bool operator==(const WorkerSet&) const = default;

 private:
  std::vector<WorkerId> workers_;
};

}  // namespace gradwire
