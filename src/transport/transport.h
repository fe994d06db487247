// Transport: carries frames between two workers, in order, by whatever means. The contract that all transports share;
// tests/transport_contract checks each of them against it.
//
// Roles (O1, O2). A connection has one read role and one write role, each held by one thread at a time. The thread with
// the read role calls the receiver. Who sends becomes the writer when nobody is, and writes for all until the queue is
// empty or the line is full; then the transport's own thread goes on. A holder of a role never waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/event.h"
#include "gradwire/error.h"
#include "wire/frame.h"

namespace gradwire::transport {

// Bytes sent by reference: `keep` holds their memory until they are written.
struct Bulk {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> keep;
};

struct OutFrame {
  std::string bytes;  // encoded header and body; the header's body_size and bulk_size are right
  Bulk bulk;          // what follows the body
};

// Frames of a lane keep their order. At each frame boundary kHeaders goes first, so that calls pass large tensors.
enum class Lane { kHeaders, kBulk };

// What a connection tells its user. All calls come under the read role, one after another; none may wait.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // A frame with bulk bytes has begun: where they go (`header.bulk_size` bytes, valid until OnFrame or OnClosed), or
  // nullptr to close the connection.
  virtual std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body) = 0;

  // A whole frame is here, its bulk bytes are in their target. An exception closes the connection with its text.
  virtual void OnFrame(const wire::FrameHeader& header, std::string body) = 0;

  // Exactly once, and last: the connection has ended, by Close(), by the other side, or by bad bytes.
  virtual void OnClosed(const Failure& reason) = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;

  // Begins to read. Once. Until then nothing is read, and the other side's frames wait.
  virtual void Start(std::shared_ptr<Receiver> receiver) = 0;

  // Queues a frame and never blocks; Flush() begins to write what is queued. Apart, so that a caller may queue under a
  // lock that orders its frames and write after it. After the end of the connection frames are dropped. Any thread,
  // roles included; every Queue() is followed by a Flush() of the same thread.
  virtual void Queue(OutFrame frame, Lane lane) = 0;
  virtual void Flush() = 0;
  void Send(OutFrame frame, Lane lane) {
    Queue(std::move(frame), lane);
    Flush();
  }

  // For a thread that is about to wait for what a frame of this connection will bring: reads for it, with the read role
  // borrowed from the transport's thread, until `event` is set or `limit` has passed, so that no other thread has to be
  // woken. Comes back at once when the role is not to be had, as where nothing is gained by it (as here). Not under a
  // role. The receiver is called on this thread meanwhile.
  virtual void ReadUntil(const Event& event, Duration limit) {
    (void)event;
    (void)limit;
  }

  // Ends the connection: frames queued before it are still written when the line takes them within a second, then
  // OnClosed(reason) is called under the read role. Any thread, more than once.
  virtual void Close(Failure reason) = 0;

  // Larger bodies close the connection. Starts at kBodyBeforeHandshake; raised once the peer is known. Any thread.
  virtual void SetBodyLimit(uint32_t bytes) = 0;
  static constexpr uint32_t kBodyBeforeHandshake = 4096;

  // For a person: "tcp 127.0.0.1:4711".
  virtual std::string description() const = 0;
};

class Transport {
 public:
  using AcceptCallback = std::function<void(std::shared_ptr<Connection>)>;
  using ConnectCallback = UniqueFunction<void(std::shared_ptr<Connection>, const Failure&)>;  // nullptr: failed

  virtual ~Transport() = default;

  virtual std::string_view scheme() const = 0;  // "tcp"

  // Begins to accept and returns the address that others connect to, "tcp://127.0.0.1:4711". `accept` runs on the
  // transport's thread and must not wait. Throws Error when it cannot listen. Once.
  virtual std::string Listen(AcceptCallback accept) = 0;

  // Calls back once, on the transport's thread, not after `limit`.
  virtual void Connect(const std::string& address, TimePoint limit, ConnectCallback callback) = 0;

  // Ends all connections and pending connects, calling back for each; after return no callback runs. Idempotent. Not
  // from a callback.
  virtual void Stop() = 0;
};

}  // namespace gradwire::transport
