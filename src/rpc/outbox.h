// Outbox: the messages of one direction of a pair, kept until the other side has acknowledged them (O3). Pure: it knows
// no connection, no lock and no clock. What it lets go of is returned, to be destroyed where that is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/util/SmallVector.h>

#include "base/rule.h"
#include "rpc/interval_set.h"
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

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/session_explore.h).
struct OutboxRules {
  GRADWIRE_RULE kFreeWhenAcknowledged = true;       // a body is kept after it was handed out
  GRADWIRE_RULE kBulkOutlivesHeader = true;         // the acknowledgement of a message does not cover its bulk
  GRADWIRE_RULE kGoOnFromTaken = true;              // a resume sends again what was on its way
  GRADWIRE_RULE kForgetWhatWasAcknowledged = true;  // a resume frees what the other side has taken
  GRADWIRE_RULE kResumeDecidesParked = true;        // what had no memory on the old path may have some now
};

// A table that steps: an event changes it, or throws Error(kInvalid) without a change when the
// other side may not say that. The caller holds one mutex around each event. Copyable, so that states can be explored.
template <class Rules>
class BasicOutbox {
 public:
  static constexpr size_t kPieceBytes = size_t{1} << 20;  // small messages pass large tensors between two pieces
  // Of one message, before its first answer: memory that is not there yet costs no more than this, sent in vain.
  static constexpr size_t kEagerBytes = size_t{1} << 20;

  // Numbers the message from 1 and queues it. The first 32 bytes of `message.bytes` are room for a header, not sent.
  // REQUIRES: End() was not called.
  uint64_t Push(wire::FrameKind kind, wire::EncodedMessage message);

  // Appends what goes next on the path: headers first, then pieces of messages whose header has gone, of about `budget`
  // bytes in all and at least one frame when there is any. `taken` goes into each as `acknowledged`.
  void Next(size_t budget, uint64_t taken, std::vector<transport::OutFrame>& frames);
  bool has_next() const { return next_ <= last_ || !turns_.empty(); }

  // All of these throw Error(kInvalid) for what cannot be, without a change. After End() they do nothing.
  // Messages up to `number` have been taken: their bodies are let go.
  Freed Acked(uint64_t number);
  // kHad: the storage is let go once all of it is had. kLater: missing again, and parked until kNow or a resume.
  Freed Answered(const wire::PieceAnswer& answer);
  // The other side tells, on a new path, what it has: all that went beyond that goes again.
  Freed Resume(const wire::ResumeState& told);

  // Gives everything up. Messages from number first_never_sent() on were never handed out.
  Freed End();
  uint64_t first_never_sent() const { return sent_ + 1; }  // after End() too

  uint64_t last() const { return last_; }    // number of the last message pushed
  uint64_t acked() const { return acked_; }  // highest acknowledged
  // Something is not acknowledged, or not had.
  bool retains() const { return !ended_ && (acked_ < last_ || !sending_.empty()); }
  size_t retained_bytes() const { return retained_bytes_; }  // of bodies and storages that are kept

  // Equal exactly for equal states; the contents of messages do not count.
  std::string Encoding() const;

 private:
  // Of a body that is returned when it is let go, because to free it takes a while. A smaller one is freed at once.
  static constexpr size_t kLargeBody = size_t{64} << 10;

  struct Message {
    wire::FrameKind kind;
    bool has_bulk;
    std::string bytes;  // room for a header, then the body
  };
  struct Storage {
    wire::BulkSource source;
    IntervalSet missing;
    IntervalSet handed_out;  // neither: the other side has it
    bool kept = false;       // not all of it is had
  };
  // Whether pieces may go: a few before the first answer, none while there is no memory for them, or all.
  enum class Flow : uint8_t { kEager, kParked, kFlowing };
  // A message whose storages are not all had.
  struct Sending {
    std::vector<Storage> storages;
    size_t first_missing = 0;  // no storage before it has missing bytes
    size_t open = 0;           // storages that are kept
    Flow flow = Flow::kEager;
    bool in_turn = false;      // stands in turns_
    uint64_t eager_bytes = 0;  // handed out while kEager
  };
  using Sendings = std::map<uint64_t, Sending>;

  std::shared_ptr<const Message>& At(uint64_t number) { return kept_[number & (kept_.size() - 1)]; }
  void Grow();
  void FreeBodies(uint64_t number, Freed& freed);
  void FreeStorage(Sending& sending, Storage& storage, Freed& freed);
  void HandOutHeader(uint64_t taken, std::vector<transport::OutFrame>& frames);
  void HandOutPiece(uint64_t taken, std::vector<transport::OutFrame>& frames);
  typename Sendings::iterator FindHandedOut(const wire::PieceAnswer& answer);
  void FindTurn(uint64_t number, Sending& sending);
  void CheckTold(const wire::ResumeState& told) const;
  static void CheckPresent(uint64_t number, const Sending& sending, const wire::ResumeState::Arriving& told);
  void ResumeSending(Sending& sending, const wire::ResumeState::Arriving& told, Freed& freed);

  uint64_t last_ = 0;
  uint64_t next_ = 1;   // header to hand out
  uint64_t sent_ = 0;   // highest that ever was handed out
  uint64_t acked_ = 0;  // those up to here are freed, but for bulk
  bool ended_ = false;
  size_t retained_bytes_ = 0;
  std::vector<std::shared_ptr<const Message>> kept_;  // those of (acked_, last_]; a ring of a power of two
  Sendings sending_;
  c10::SmallVector<uint64_t, 4> turns_;  // messages that have a piece to send, each once

  friend struct SessionExplorer;
};

using Outbox = BasicOutbox<OutboxRules>;
extern template class BasicOutbox<OutboxRules>;

}  // namespace gradwire::rpc
