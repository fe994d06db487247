#include "base/task_lines.h"

#include <utility>

namespace gradwire {

void TaskLines::AddHandler(uint64_t peer, Task task) {
  std::deque<Task>& line = of_peer_[peer];
  if (line.empty()) turns_.push_back(peer);
  line.push_back(std::move(task));
  ++handlers_;
}

Task TaskLines::TakeOwn() {
  Task task = std::move(own_.front());
  own_.pop_front();
  return task;
}

Task TaskLines::TakeHandler() {
  const uint64_t peer = turns_.front();
  turns_.pop_front();
  const auto line = of_peer_.find(peer);
  Task task = std::move(line->second.front());
  line->second.pop_front();
  --handlers_;
  if (line->second.empty()) {
    of_peer_.erase(line);
  } else {
    turns_.push_back(peer);
  }
  return task;
}

}  // namespace gradwire
