// Session: what goes between this worker and one peer, in order, over whatever connections there are (O1, O3).
//
// A session sends over one connection, the first that is ready, and receives on any: when both sides connect at once
// each may send on its own, and no choice has to be agreed on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/task.h"
#include "gradwire/error.h"
#include "rpc/credit.h"
#include "rpc/interceptor.h"
#include "transport/transport.h"
#include "wire/call.h"

namespace gradwire::rpc {

class Session;

// What a session needs from its Rpc. The calls for frames come under the read role.
class SessionHost {
 public:
  virtual ~SessionHost() = default;

  // Begins to connect; ends in Attach() or ConnectFailed() of the session, which may come before it returns.
  virtual void Connect(const std::shared_ptr<Session>& session) = 0;

  // The header step. The returned task is run once all bytes of the message are here, and dropped when they never come.
  virtual Task OnRequest(const std::shared_ptr<Session>& session, wire::Request request) = 0;
  virtual Task OnReply(const std::shared_ptr<Session>& session, wire::Reply reply) = 0;
  virtual void OnCancel(const std::shared_ptr<Session>& session, const wire::Cancel& cancel) = 0;

  // Sends of requests that waited for credit and may go.
  virtual void Admit(std::vector<Task> sends) = 0;

  virtual void OnEnded(const std::shared_ptr<Session>& session, const Failure& reason) = 0;
  virtual void Discard(std::vector<Task> tasks) = 0;  // destroys them where user values may be destroyed
  virtual size_t max_bulk_bytes() const = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<SessionHost> host, Peer peer) : host_(std::move(host)), peer_(std::move(peer)) {}

  const Peer& peer() const { return peer_; }
  Credit& credit() { return credit_; }

  // Numbers the message and queues it; connects when nothing is connected yet. The reason when the session has ended:
  // the message was not queued. Flush() writes; apart, since the caller may hold the send-step mutex. Any thread.
  std::optional<Failure> Enqueue(wire::FrameKind kind, wire::EncodedMessage message);
  void Flush();

  // A connection whose other side has proved to be the peer. OnConnectionClosed() follows for each.
  void Attach(std::shared_ptr<transport::Connection> connection);
  void OnConnectionClosed(const Failure& reason);  // under its read role, last

  // For a thread that waits for `event`, which a message of the peer will set: reads messages on it, for as long as a
  // quick answer takes. Where the last answers took longer it is not tried for a while.
  void ReadUntil(const Event& event);

  // The peer sends on this one. Under its read role, before its first message. Throws Error for a second one.
  void SetIncoming(std::shared_ptr<transport::Connection> connection);

  // Under the read role of one of its connections. Throw Error for what the peer may not send.
  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body);
  void OnFrame(const wire::FrameHeader& header, std::string_view body);

  // Ends it once and for all: frames queued so far are still written if they can be, later ones are refused with
  // `reason`. `announce` tells the peer that it is on purpose.
  void End(const Failure& reason, bool announce = false);
  // An attempt to connect has failed: ends it, unless the peer has connected meanwhile.
  void ConnectFailed(const Failure& reason);
  std::optional<Failure> ended_because() const;  // nothing while it lives

 private:
  enum class State { kIdle, kConnecting, kOpen, kEnded };
  struct Arriving {
    Task complete;
    std::vector<wire::BulkTarget> storages;
    std::vector<uint64_t> received;  // bytes of each
    size_t open = 0;                 // storages that lack bytes
  };

  void EndIn(const Failure& reason, bool announce, bool only_unless_open);
  void QueueLocked(transport::OutFrame frame, transport::Lane lane);
  void Arrive(uint64_t number, Task complete, std::vector<wire::BulkTarget> storages);
  void OnBulk(const wire::FrameHeader& header, std::string_view body);

  const std::shared_ptr<SessionHost> host_;
  const Peer peer_;
  Credit credit_;

  mutable std::mutex send_mutex_;  // held while frames are queued, which may free some of a connection that has ended
  State state_ = State::kIdle;
  Failure ended_because_;
  uint64_t sent_ = 0;
  std::shared_ptr<transport::Connection> out_;
  std::shared_ptr<transport::Connection> in_;
  std::vector<std::pair<transport::OutFrame, transport::Lane>> backlog_;  // until out_ is there
  std::vector<std::shared_ptr<transport::Connection>> connections_;

  // In ReadUntil(): answers in a row that took too long, and calls that do without.
  std::atomic<uint32_t> misses_{0};
  std::atomic<uint32_t> to_skip_{0};

  // A peer sends on one connection, so one read role touches these; the mutex is for closing. A connection may be
  // reading into a storage until it has closed: what is arriving is kept until all have.
  std::mutex receive_mutex_;
  int open_connections_ = 0;
  std::atomic<uint64_t> handled_{0};
  std::unordered_map<uint64_t, Arriving> arriving_;
};

}  // namespace gradwire::rpc
