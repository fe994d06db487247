// BulkBudget: how much memory a worker gives to large messages that have been announced and not yet handled. What is
// over it waits for its turn; peers take turns, so that one that announces much delays only itself.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/task.h"

namespace gradwire::rpc {

class BulkBudget : public std::enable_shared_from_this<BulkBudget> {
 public:
  struct Limits {
    size_t of_worker = 0;  // bytes
    size_t of_peer = 0;    // bytes; one message may exceed it when the peer has no other
  };
  // `post` runs a task on the executor.
  BulkBudget(Limits limits, std::function<void(Task)> post) : limits_(limits), post_(std::move(post)) {}

  // Four fifths of the machine's memory for all, half of that for one peer.
  static Limits OfMachine();

  // The share of one message. Its end gives the bytes back, wherever it is held.
  class Lease {
   public:
    Lease() = default;
    ~Lease();
    Lease(const Lease&) = delete;

   private:
    friend class BulkBudget;
    std::shared_ptr<BulkBudget> budget_;
    WorkerId peer_;
    size_t bytes_ = 0;
    bool granted_ = false;  // guarded by the budget's mutex
  };

  // `granted` is posted when the bytes are to be had; dropped when the lease ends first. Throws Error(kOverloaded) for
  // more than the worker may ever have. Once for each lease, after Take() perhaps. Any thread, roles included.
  void Ask(const std::shared_ptr<Lease>& lease, WorkerId peer, size_t bytes, Task granted);

  // The same when it need not wait; else nothing has happened.
  bool Take(const std::shared_ptr<Lease>& lease, WorkerId peer, size_t bytes);

  size_t in_flight() const;

 private:
  struct Waiting {
    std::weak_ptr<Lease> lease;
    size_t bytes = 0;
    Task granted;
  };
  struct OfPeer {
    size_t in_flight = 0;
    std::deque<Waiting> waiting;
  };

  void GiveBack(WorkerId peer, size_t bytes, bool granted);
  void GrantLocked(std::vector<Task>& tasks, std::vector<std::shared_ptr<Lease>>& held);

  const Limits limits_;
  const std::function<void(Task)> post_;
  mutable std::mutex mutex_;  // guards:
  size_t in_flight_ = 0;
  std::unordered_map<WorkerId, OfPeer> peers_;
  std::deque<WorkerId> turns_;  // peers with somebody waiting
};

}  // namespace gradwire::rpc
