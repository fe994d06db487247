// ServedCalls: the calls of others that wait for a thread here or run, for whoever cancels them.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rpc/served_call.h"

namespace gradwire::rpc {

// Thread-safe. Holds no call alive.
class ServedCalls {
 public:
  void Add(const std::shared_ptr<ServedCallImpl>& call, const Clock& clock);  // again: nothing happens
  void Remove(ServedCallImpl& call);
  // nullptr when it is not there (any more)
  std::shared_ptr<ServedCallImpl> Find(WorkerId caller, CallId id) const;
  std::vector<std::shared_ptr<ServedCallImpl>> AllOf(WorkerId caller) const;
  // Destroy them off the roles: some may be the last of their call.
  std::vector<std::shared_ptr<ServedCallImpl>> All() const;
  size_t size() const;

 private:
  struct Key {
    uint64_t caller;
    CallId id;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return key.id * 0x9e3779b97f4a7c15 ^ key.caller; }
  };

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::weak_ptr<ServedCallImpl>, Hash> calls_;
};

}  // namespace gradwire::rpc
