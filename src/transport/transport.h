// Transport: carries frames between two workers, in order, by whatever means. The contract that all transports share;
// tests/transport_contract checks each of them against it.
//
// Roles (O1, O2). A connection has one read role and one write role, each held by one thread at a time. The thread with
// the read role calls the receiver; the one with the write role pulls frames from the source and writes them, for all,
// until the source has none or the line is full; then the transport's own thread goes on. A holder of a role never
// waits, and holds no lock of the connection while it calls the receiver or the source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event.h"
#include "gradwire/error.h"
#include "wire/frame.h"

namespace gradwire::transport {

// Bytes that a connection sends by reference: `keep` holds their memory for as long as somebody may read it.
struct Bulk {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> keep;
};

// One frame on its way out, in up to three parts that are written one after another. It shares what it refers to, so
// that a writer which is late neither reads freed memory nor sees bytes change.
struct OutFrame {
  static constexpr size_t kHeadBytes = 64;

  std::array<char, kHeadBytes> head{};  // the encoded header, then a body short enough to stand here
  uint32_t head_size = 0;
  std::string_view body;                  // the body, when it does not stand in `head`
  std::shared_ptr<const void> body_keep;  // holds the memory of `body`
  Bulk bulk;                              // what follows the body

  size_t size() const { return head_size + body.size() + bulk.size; }
};

// The frame of a header and a body: `header.body_size` is set here. A short body is copied into the head.
OutFrame MakeFrame(wire::FrameHeader header, std::string body = {});

// What a connection tells its user. All calls come under the read role, one after another; none may wait.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // A frame with bulk bytes has begun: where they go (`header.bulk_size` bytes, valid until OnFrame or OnClosed).
  // nullptr: nowhere; they are read and forgotten, then OnFrame is called as ever. An exception closes the connection.
  virtual std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body) = 0;

  // A whole frame is here, its bulk bytes are in their target. An exception closes the connection with its text.
  virtual void OnFrame(const wire::FrameHeader& header, std::string body) = 0;

  // Exactly once, and last: the connection has ended, by Close(), by Abort(), by the other side, or by bad bytes (then
  // the code is kInvalid or kInternal; else kDisconnected).
  virtual void OnClosed(const Failure& reason) = 0;
};

// What a connection writes.
class FrameSource {
 public:
  virtual ~FrameSource() = default;

  // Under the write role: appends the frames that go next, of about `budget` bytes in all, at least one when there is
  // any. None appended: there is nothing to write until the next Wake(). Must not wait, and must not throw.
  virtual void Next(size_t budget, std::vector<OutFrame>& frames) = 0;

  // Takes frames that are written, or never will be, and leaves `frames` empty. What they hold may be the last share of
  // a program's value, so it must be destroyed where that is allowed, not here. Under the write role, or at the end of
  // the connection, when nobody has it.
  virtual void Release(std::vector<OutFrame>& frames) = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;

  // Begins to read, and to pull. Once. Until then nothing is read, and the other side's frames wait.
  virtual void Start(std::shared_ptr<Receiver> receiver, std::shared_ptr<FrameSource> source) = 0;

  // The source has frames: writes them, on this thread when nobody has the write role. No wake is lost: frames that the
  // source had before the call are pulled. Never blocks. Any thread, roles included, but not under a lock that the
  // source takes. After the end of the connection nothing happens.
  virtual void Wake() = 0;

  // For a thread that is about to wait for what a frame of this connection will bring: reads for it, with the read role
  // borrowed from the transport's thread, until `event` is set or `limit` has passed, so that no other thread has to be
  // woken. Comes back at once when the role is not to be had, as where nothing is gained by it (as here). Not under a
  // role. The receiver is called on this thread meanwhile.
  virtual void ReadUntil(const Event& event, Duration limit) {
    (void)event;
    (void)limit;
  }

  // Ends the connection: what the source still gives is written when the line takes it within a second, then
  // OnClosed(reason) is called under the read role. No frame is delivered any more. Any thread, more than once; not
  // under a lock that the source or the receiver takes.
  virtual void Close(Failure reason) = 0;

  // The same at once: nothing more is pulled, written or read. After Close() it cuts its second short.
  virtual void Abort(Failure reason) = 0;

  // Larger bodies close the connection. Starts at kBodyBeforeHandshake; raised once the peer is known. Any thread.
  virtual void SetBodyLimit(uint32_t bytes) = 0;
  static constexpr uint32_t kBodyBeforeHandshake = 4096;

  // For a person: "tcp 127.0.0.1:4711".
  virtual std::string description() const = 0;
};

class Transport {
 public:
  using AcceptCallback = std::function<void(std::shared_ptr<Connection>)>;
  // nullptr: it failed. The code is kDisconnected when nobody listens there, as the system says (a refused connect),
  // kInvalid for an address that can never work, kUnreachable for everything that may be otherwise a moment later.
  using ConnectCallback = UniqueFunction<void(std::shared_ptr<Connection>, const Failure&)>;

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
