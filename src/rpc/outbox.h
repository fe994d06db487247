// Outbox: the messages of one direction of a pair, kept until the other side has acknowledged them (O3). Pure: it knows
// no connection, no lock and no clock. What it lets go of is returned, to be destroyed where that is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"
#include "wire/call.h"
#include "wire/handshake.h"

namespace gradwire::rpc {

// Shares that were let go of. Perhaps the last ones of programs' values: destroyed after unlock, and on the executor
// when `has_bulk`.
struct Freed {
  std::vector<std::shared_ptr<const void>> shares;
  bool has_bulk = false;
};

class Outbox {
 public:
  static constexpr size_t kPieceBytes = size_t{1} << 20;  // small messages pass large tensors between two pieces
  // Of one message, before its first answer: memory that is not there yet costs no more than this, sent in vain.
  static constexpr size_t kEagerBytes = size_t{1} << 20;

  Outbox();
  ~Outbox();
  Outbox(const Outbox&) = delete;

  // Numbers the message from 1 and queues it. The first 32 bytes of `message.bytes` are room for a header, not sent.
  uint64_t Push(wire::FrameKind kind, wire::EncodedMessage message);

  // Appends what goes next on the path: headers first, then pieces of messages whose header has gone, of about `budget`
  // bytes in all and at least one frame when there is any. `taken` goes into each as `acknowledged`.
  void Next(size_t budget, uint64_t taken, std::vector<transport::OutFrame>& frames);
  bool has_next() const;

  // All of these throw Error(kInvalid) for what cannot be, without a change.
  // Messages up to `number` have been taken: their bodies are let go.
  Freed Acked(uint64_t number);
  // kHad: the storage is let go once all of it is had. kLater: missing again, and parked until kNow or a resume.
  Freed Answered(const wire::PieceAnswer& answer);
  // The other side tells, on a new path, what it has: all that went beyond that goes again.
  Freed Resume(const wire::ResumeState& told);

  // Gives everything up. Messages from number first_never_sent() on were never handed out.
  Freed End();
  uint64_t first_never_sent() const;  // after End() too

  uint64_t last() const;      // number of the last message pushed
  uint64_t acked() const;     // highest acknowledged
  bool retains() const;       // something is not acknowledged, or not had
  size_t retained_bytes() const;  // of bodies and storages that are kept

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire::rpc
