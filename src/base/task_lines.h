// TaskLines: the tasks that wait for a thread of a pool. The library's own stand in one line, the handlers of each peer
// in one of their own; the peers take turns, so that one which floods this worker delays no other (C4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "base/task.h"

namespace gradwire {

// Not thread-safe.
class TaskLines {
 public:
  void Add(Task task) { own_.push_back(std::move(task)); }
  void AddHandler(uint64_t peer, Task task);

  size_t own() const { return own_.size(); }
  size_t handlers() const { return handlers_; }
  size_t size() const { return own_.size() + handlers_; }
  bool empty() const { return size() == 0; }

  // The next of its kind; REQUIRES: there is one.
  Task TakeOwn();
  Task TakeHandler();  // of the peer whose turn it is

 private:
  std::deque<Task> own_;
  std::unordered_map<uint64_t, std::deque<Task>> of_peer_;  // none is empty
  std::deque<uint64_t> turns_;                              // each peer of `of_peer_` once, the next one first
  size_t handlers_ = 0;
};

}  // namespace gradwire
