// Inbox: what has been taken of the other direction of a pair, and what is owed for it (O3). Pure: it knows no
// connection, no lock and no clock. Tasks that it lets go of are returned, to be run or destroyed where that is
// allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rule.h"
#include "base/task.h"
#include "rpc/interval_set.h"
#include "wire/call.h"
#include "wire/handshake.h"

namespace gradwire::rpc {

// The rules that tests switch off one at a time, to see that the exploration notices (tests/sim/session_explore.h).
struct InboxRules {
  GRADWIRE_RULE kOnlyTheNextMessage = true;      // none is taken twice
  GRADWIRE_RULE kLaterOwesNow = true;            // whoever was told to wait is told when there is memory
  GRADWIRE_RULE kNotReadyOwesNow = true;         // by a resume, too
  GRADWIRE_RULE kForgetAnswersOfOldPath = true;  // a resume says it all
  GRADWIRE_RULE kLeaverCounts = true;            // a side that leaves takes messages still
  GRADWIRE_RULE kLeaverNeedsNoMemory = true;     // and bytes
};

// A table that steps: an event changes it, or throws Error(kInvalid) without a change when the other side may not send
// that. The caller holds one mutex around each event. With a copyable `Complete` it is copyable, so that states can be
// explored.
template <class Rules, class Complete>
class BasicInbox {
 public:
  // Message `number` must come next. Its header step is done by the caller between the two calls, then it is taken:
  // never before, since `taken` is what the other side frees its messages by.
  void CheckNext(uint64_t number) const;
  // `complete` is to run once all bytes of the storages are in place; returned at once when there are none to wait for.
  // Without `ready` the storages have sizes, and no memory until Ready(). After Leave() there is no header step, and
  // `complete` is empty; then nothing is returned. REQUIRES: CheckNext(number) has passed, End() was not called.
  std::optional<Complete> Take(uint64_t number, Complete complete, std::vector<wire::BulkTarget> storages, bool ready);
  uint64_t taken() const { return taken_; }

  // Memory for a message that was taken without it. A message that is no longer here is ignored. Its `complete` is
  // never returned by this: bytes come after it.
  void Ready(uint64_t number, std::vector<wire::BulkTarget> storages);
  // There will be no memory for it: what still comes of its bytes is read and forgotten, and counts as had. Its
  // `complete` is returned, to be told so by the caller; nothing when it is no longer here.
  std::optional<Complete> Forget(uint64_t number);

  // A piece has begun: where its bytes go, nullptr for nowhere. It must belong to an arriving message and be missing
  // there, whole. OnPiece() of the same piece follows, or the end of the path. The memory is kept until then.
  std::byte* Place(const wire::BulkPiece& piece, uint64_t size);
  // All of its bytes have come: it is had, or forgotten when it went nowhere. `complete` when it was the last one.
  std::optional<Complete> OnPiece(const wire::BulkPiece& piece, uint64_t size);

  // What to tell on a new path. Forgets what is owed on the old one, but for kNow of messages that it calls not ready.
  // REQUIRES: no connection of an older path is read any more.
  wire::ResumeState Resume();

  // Answers that are owed, in the order of their pieces, moved out; at most kMostPieceAnswers.
  std::vector<wire::PieceAnswer> TakeAnswers();
  bool owes_answers() const { return !owed_.empty(); }
  bool owes_at_once() const { return owed_at_once_ > 0; }  // kLater or kNow is among them

  // The session leaves: messages are taken and pieces counted as had without memory; nothing completes any more. The
  // tasks of what was arriving are returned.
  std::vector<Complete> Leave();
  // The session has ended: the same, and nothing is owed. The memory of a piece that is being placed is kept until
  // OnPiece() or Drop().
  std::vector<Complete> End();
  // No connection is read any more: lets the memory go.
  void Drop() { placing_.reset(); }

  bool arriving() const { return !arriving_.empty(); }       // a message lacks bytes
  uint64_t awaited_bytes() const { return awaited_bytes_; }  // announced and not yet in place

  // Equal exactly for equal states; tasks and memory do not count.
  std::string Encoding() const;

 private:
  struct Storage {
    wire::BulkTarget target;
    IntervalSet present;
  };
  // A message that lacks bytes.
  struct Arriving {
    Complete complete{};
    std::vector<Storage> storages;
    uint64_t missing = 0;    // bytes of all storages
    bool ready = false;      // there is memory, or none is needed
    bool forgotten = false;  // none is needed: what comes counts as had
    bool owes_now = false;   // the other side waits until it is told that it is ready
  };
  // The piece that is being read.
  struct Placing {
    uint64_t message = 0;
    bool in_place = false;
    std::shared_ptr<const void> keep;
  };
  using Arrivals = std::map<uint64_t, Arriving>;

  typename Arrivals::iterator Find(const wire::BulkPiece& piece, uint64_t size);
  void MakeReady(uint64_t number, Arriving& message);
  void ForgetBytes(uint64_t number, Arriving& message);
  void Owe(const wire::PieceAnswer& answer);

  uint64_t taken_ = 0;
  Arrivals arriving_;
  uint64_t awaited_bytes_ = 0;
  std::optional<Placing> placing_;
  std::vector<wire::PieceAnswer> owed_;
  size_t owed_at_once_ = 0;
  bool leaving_ = false;
  bool ended_ = false;

  friend struct SessionExplorer;
};

using Inbox = BasicInbox<InboxRules, Task>;
extern template class BasicInbox<InboxRules, Task>;

}  // namespace gradwire::rpc
