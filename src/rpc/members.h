// Members: who is in the group, by name and by rank, and who is there no more.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/worker_info.h"
#include "rpc/interceptor.h"

namespace gradwire::rpc {

struct Member {
  Peer peer;
  std::vector<std::string> addresses;  // in the order in which to try them
  std::string published;               // of the layers above, for all to see
};

// Thread-safe. Lookups throw Error(kUnknownWorker) with the names there are. They find the lost as well, until others
// take their names: calls to them fail with the reason why their sessions have ended.
class Members {
 public:
  // Whoever has this name or this rank is lost.
  void Add(Member member);
  // The same unless another, or another incarnation, has its name or its rank: then false.
  bool AddUnlessTaken(Member member);
  // It has never come, or cannot be reached: nothing is kept of it. Nothing happens to another incarnation.
  void Remove(WorkerId id);
  // It is there no more, and does not come back. Nothing happens to another incarnation, or when it is not there.
  void Lose(WorkerId id);

  Peer Named(const std::string& name) const;
  Peer Ranked(int64_t rank) const;
  // The very worker that is meant. Error(kDisconnected) when another has taken its name.
  Peer Meant(const WorkerInfo& info) const;
  // nothing for an unknown id, or another incarnation of a known rank
  std::optional<Member> Find(WorkerId id) const;
  std::vector<Member> All() const;  // by rank, without the lost
  size_t size() const;              // of All()

 private:
  void AddLocked(Member member);
  void LoseLocked(uint32_t rank);
  const Member* FindLost(WorkerId id) const;
  const Member* FindLost(const std::string& name) const;
  [[noreturn]] void ThrowUnknown(const std::string& what) const;

  mutable std::mutex mutex_;
  std::map<uint32_t, Member> by_rank_;
  std::map<std::string, uint32_t> by_name_;
  std::deque<Member> lost_;  // the newest last; of one name one at most, and none that is in use
};

}  // namespace gradwire::rpc
