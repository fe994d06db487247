// HalfOpen: connections that others have made, and on which they have not proved yet who they are. Each costs a
// descriptor and its handshake's time limit, so there are so many at most. The oldest goes first: a worker of the job
// needs a moment only. Connections on which somebody has proved himself are never among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "transport/transport.h"

namespace gradwire::rpc {

class HalfOpen {
 public:
  static constexpr size_t kMost = 256;

  // `link` is higher than all before. Returns the connection that has to end for it; nullptr when there is room.
  std::shared_ptr<transport::Connection> Add(uint64_t link, const std::shared_ptr<transport::Connection>& connection) {
    std::lock_guard lock(mutex_);
    connections_.emplace(link, connection);
    if (connections_.size() <= kMost) return nullptr;
    return connections_.extract(connections_.begin()).mapped().lock();
  }

  // The other side has proved itself, or the connection has ended.
  void Remove(uint64_t link) {
    std::lock_guard lock(mutex_);
    connections_.erase(link);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<transport::Connection>> connections_;  // in the order in which they came
};

}  // namespace gradwire::rpc
