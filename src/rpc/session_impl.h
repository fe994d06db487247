// What the sources of Session share.
#pragma once

#include <utility>
#include <vector>

#include "rpc/session.h"

namespace gradwire::rpc {

// What is to be done after unlock, in order.
struct Session::Todo {
  std::vector<Task> tasks;
  std::vector<Task> dropped;  // destroyed where user values may be destroyed
  void Add(Task task) { tasks.push_back(std::move(task)); }
};

template <class F>
void Session::Step(F step) {
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    DoLocked(step(paths_), todo);
  }
  Do(todo);
}

}  // namespace gradwire::rpc
