#include "transport/tcp/open_connections.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "transport/tcp/tcp_connection.h"

namespace gradwire::transport {

void OpenConnections::Add(const std::shared_ptr<TcpConnection>& connection) {
  std::lock_guard lock(mutex_);
  connections_.emplace(connection.get(), connection);
}

void OpenConnections::Remove(TcpConnection* connection) {
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) empty_.notify_all();
}

void OpenConnections::WaitUntilEmpty(std::chrono::seconds limit) {
  std::unique_lock lock(mutex_);
  if (!empty_.wait_for(lock, limit, [this] { return connections_.empty(); })) {
    Log(LogLevel::kError, "tcp: " + std::to_string(connections_.size()) + " connections did not end");
  }
}

std::vector<std::shared_ptr<TcpConnection>> OpenConnections::All() const {
  std::vector<std::shared_ptr<TcpConnection>> all;
  std::lock_guard lock(mutex_);
  for (const auto& [raw, weak] : connections_) {
    if (auto connection = weak.lock()) all.push_back(std::move(connection));
  }
  return all;
}

}  // namespace gradwire::transport
