// ContextTable: the distributed autograd contexts of one worker, by id, and which handlers run in them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "autograd/context.h"
#include "base/ids.h"

namespace gradwire::autograd {

// Thread-safe; one leaf mutex, calls nobody. May be stepped under a role (O2).
class ContextTable {
 public:
  // Another life of a worker with this rank must not give the ids of the last one again: others may remember them.
  explicit ContextTable(WorkerId self) : rank_(self.rank), next_(int64_t{self.incarnation} << kLifeShift) {}

  static constexpr int kCounterBits = 48;
  static uint32_t CreatorOf(ContextId id) { return static_cast<uint32_t>(id >> kCounterBits); }
  ContextId max_id() const { return (ContextId{rank_} << kCounterBits) | ((ContextId{1} << kCounterBits) - 1); }

  std::shared_ptr<ContextState> New();
  std::shared_ptr<ContextState> Find(ContextId id) const;  // null when unknown or released

  // Header step of a call of worker `caller` in context `id` (A7): makes it when this worker has not seen it. Null when
  // it was released, and the call runs without. Each Enter(), null or not, is followed by one Leave().
  std::shared_ptr<ContextState> Enter(ContextId id, uint32_t caller);
  void Leave(ContextId id);

  // Takes the context out. While handlers run in it an empty entry stays behind, so that what they and late headers say
  // does not make it anew. Null when unknown.
  std::shared_ptr<ContextState> Release(ContextId id);

  std::vector<ContextId> ids() const;  // released ones left out
  // A worker is gone, and all that it sent has been handled.
  struct Bereaved {
    std::vector<ContextId> orphans;  // it made them: nobody will release them any more
    std::vector<ContextId> strays;   // its calls brought them here: their maker may not know of this worker
  };
  Bereaved PeerGone(uint32_t rank);
  size_t tombstones() const;

 private:
  struct Entry {
    std::shared_ptr<ContextState> context;  // null: a tombstone
    size_t running = 0;
    std::set<uint32_t> callers;  // whose calls brought it here
  };
  static constexpr int kLifeShift = 15;  // 32 bits of an incarnation begin below bit 47

  const uint32_t rank_;
  mutable std::mutex mutex_;
  int64_t next_;
  std::unordered_map<ContextId, Entry> entries_;
};

}  // namespace gradwire::autograd
