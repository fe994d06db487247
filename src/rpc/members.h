// Members: who is in the group, by name and by rank.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rpc/interceptor.h"

namespace gradwire::rpc {

struct Member {
  Peer peer;
  std::vector<std::string> addresses;  // in the order in which to try them
  std::string published;               // of the layers above, for all to see
};

// Thread-safe. Lookups throw Error(kUnknownWorker) with the names there are.
class Members {
 public:
  // Whoever has this name or this rank is no member any more.
  void Add(Member member);
  // The same unless another, or another incarnation, has its name or its rank: then false.
  bool AddUnlessTaken(Member member);
  // Of a group whose workers come and go: nothing happens to another incarnation, or when it is not there.
  void Remove(WorkerId id);

  Peer Named(const std::string& name) const;
  Peer Ranked(int64_t rank) const;
  // nothing for an unknown id, or another incarnation of a known rank
  std::optional<Member> Find(WorkerId id) const;
  std::vector<Member> All() const;  // by rank
  size_t size() const;

 private:
  void AddLocked(Member member);

  mutable std::mutex mutex_;
  std::map<uint32_t, Member> by_rank_;
  std::map<std::string, uint32_t> by_name_;
};

}  // namespace gradwire::rpc
