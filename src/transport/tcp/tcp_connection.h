// TcpConnection: one socket. The loop's thread holds the read role unless a waiting thread has borrowed it; whoever
// wakes it may hold the write role.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"
#include "transport/tcp/open_connections.h"
#include "transport/transport.h"

namespace gradwire::transport {

class TcpConnection final : public Connection, public std::enable_shared_from_this<TcpConnection> {
 public:
  // Takes a connected, non-blocking socket.
  static std::shared_ptr<TcpConnection> Make(Loop& loop, int fd, std::shared_ptr<OpenConnections> open);
  ~TcpConnection() override;

  void Start(std::shared_ptr<Receiver> receiver, std::shared_ptr<FrameSource> source) override;
  void Wake() override;
  void ReadUntil(const Event& event, Duration limit) override;
  void Close(Failure reason) override;
  void Abort(Failure reason) override;
  void SetBodyLimit(uint32_t bytes) override { body_limit_.store(bytes, std::memory_order_relaxed); }
  std::string description() const override { return description_; }

 private:
  class Turn;  // a stretch of reading whose answers are written together

  TcpConnection(Loop& loop, int fd, std::shared_ptr<OpenConnections> open);

  // Runs `task`, a copyable function, with the read role: now, or once it is given back. Loop's thread.
  template <class F>
  void WithRole(F task);
  template <class F>
  void PostWithRole(F task);
  bool IsBorrowed();
  bool Borrow();
  void GiveBack(bool to_end);

  // REQUIRES: the loop's thread, with the read role.
  void Begin();
  void OnReady(uint32_t events);
  void Read(bool to_the_end);
  void Discard();
  void OnAllWritten();
  void EndAsRead();
  void EndBroken(int error);
  void End(const Failure& reason);

  // REQUIRES: the read role.
  FrameReader::Result ReadOnce(bool to_the_end);

  bool PostUnlessEnded(Task task);
  void PostEnd();

  // REQUIRES: this thread has the write role.
  void WriteWithRole();
  void AwaitRoom();

  uint32_t InterestLocked() const;  // in events of the socket

  Loop& loop_;  // not touched once ended_
  const int fd_;
  const std::shared_ptr<OpenConnections> open_;
  const std::string description_;
  std::atomic<uint32_t> body_limit_{kBodyBeforeHandshake};
  std::atomic<bool> closing_{false};  // Close() or Abort() was called: nothing more is delivered

  FrameWriter writer_;

  std::mutex mutex_;  // guards:
  bool ended_ = false;
  Failure end_reason_;  // since Close() or Abort(), or the end
  TimerId close_limit_ = 0;
  std::shared_ptr<Receiver> receiver_;  // set by Start(), taken by the end; the read role uses its own copy
  bool reading_ = false;                // the loop's thread uses the read role
  bool borrowed_ = false;               // another thread does
  std::vector<Task> deferred_;          // what the loop's thread wants to do with it meanwhile
  bool awaits_room_ = false;            // the write role waits for the socket

  std::atomic<bool> wanted_back_{false};  // deferred_ is not empty

  // The read role's own.
  FrameReader reader_;
  std::shared_ptr<Receiver> reading_for_;
  bool watched_ = false;
  bool read_all_ = false;       // there is nothing more to read, or it is bad:
  std::optional<Failure> bad_;  // then why
  bool over_ = false;           // as ended_
};

}  // namespace gradwire::transport
