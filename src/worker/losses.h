// Losses: who has been lost, told to the program, each once to each of its callbacks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "gradwire/error.h"
#include "gradwire/worker_info.h"

namespace gradwire {

// One per Worker. Thread-safe. Callbacks run on the executor, one at a time, in the order of the losses.
class Losses : public std::enable_shared_from_this<Losses> {
 public:
  using Callback = std::function<void(const WorkerInfo&, const Failure&)>;

  explicit Losses(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // It is told of the newest 1,000 that were lost before, too: a program need not hurry to add it.
  void Listen(Callback callback);

  // Not of one that has left. May run under a role.
  void Add(const WorkerInfo& worker, const Failure& reason);

  // No callback begins any more, and what is lost later is no loss: this worker leaves.
  void Close();

 private:
  struct Loss {
    WorkerInfo worker;
    Failure reason;
  };
  struct Listener {
    Callback callback;
    uint64_t next = 0;  // the number of the loss to tell it next
  };

  void TellLocked();
  void Tell();

  const std::shared_ptr<Executor> executor_;

  std::mutex mutex_;  // guards all below; a leaf
  std::deque<Loss> losses_;
  uint64_t first_ = 0;  // the number of losses_.front()
  std::vector<std::shared_ptr<Listener>> listeners_;
  bool telling_ = false;
  bool closed_ = false;
};

}  // namespace gradwire
