// TcpConnection: one socket. The loop's thread holds the read role; whoever sends may hold the write role.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/out_queue.h"
#include "transport/transport.h"

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

class TcpConnection final : public Connection, public std::enable_shared_from_this<TcpConnection> {
 public:
  // Takes a connected, non-blocking socket.
  static std::shared_ptr<TcpConnection> Make(Loop& loop, int fd, std::shared_ptr<OpenConnections> open);
  ~TcpConnection() override;

  void Start(std::shared_ptr<Receiver> receiver) override;
  void Queue(OutFrame frame, Lane lane) override;
  void Flush() override;
  void Close(Failure reason) override;
  void SetBodyLimit(uint32_t bytes) override { body_limit_.store(bytes, std::memory_order_relaxed); }
  std::string description() const override { return description_; }

  // Ends it now, whatever is queued. Loop's thread.
  void EndFromLoop(const Failure& reason);

 private:
  class Turn;  // a stretch of reading whose answers are written together

  TcpConnection(Loop& loop, int fd, std::shared_ptr<OpenConnections> open);

  // Read role.
  void BeginFromLoop();
  void OnReadyFromLoop(uint32_t events);
  void ReadFromLoop(bool to_the_end);
  void DiscardFromLoop();
  void OnAllWrittenFromLoop();
  void EndBrokenFromLoop(int error);
  bool PostUnlessEnded(Task task);

  // REQUIRES: this thread has the write role.
  void WriteWithRole();

  Loop& loop_;  // not touched once ended_
  const int fd_;
  const std::shared_ptr<OpenConnections> open_;
  const std::string description_;
  std::atomic<uint32_t> body_limit_{kBodyBeforeHandshake};
  std::atomic<bool> closing_{false};  // Close() was called: nothing more is delivered

  OutQueue out_;

  std::mutex mutex_;  // guards:
  bool ended_ = false;
  Failure end_reason_;  // since Close(), or the end
  TimerId close_limit_ = 0;
  std::shared_ptr<Receiver> receiver_;  // set by Start(), taken by the end; the read role uses its own copy

  // The read role's own.
  FrameReader reader_;
  std::shared_ptr<Receiver> reading_for_;
  bool watched_ = false;
  bool over_ = false;  // as ended_
};

}  // namespace gradwire::transport
