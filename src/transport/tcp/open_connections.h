// OpenConnections: what a transport waits for when it stops.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gradwire::transport {

class TcpConnection;

// The connections of one transport that have not ended. Any thread.
class OpenConnections {
 public:
  void Add(const std::shared_ptr<TcpConnection>& connection);
  void Remove(TcpConnection* connection);
  std::vector<std::shared_ptr<TcpConnection>> All() const;
  // Each ends within a second of its Close(); `limit` is for a loop that no longer runs.
  void WaitUntilEmpty(std::chrono::seconds limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::unordered_map<TcpConnection*, std::weak_ptr<TcpConnection>> connections_;
};

}  // namespace gradwire::transport
