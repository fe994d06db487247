// Inbox: what has been taken of the other direction of a pair, and what is owed for it (O3). Pure: it knows no
// connection, no lock and no clock. Tasks that it lets go of are returned, to be run or destroyed where that is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/task.h"
#include "wire/call.h"
#include "wire/handshake.h"

namespace gradwire::rpc {

class Inbox {
 public:
  Inbox();
  ~Inbox();
  Inbox(const Inbox&) = delete;

  // All of these throw Error(kInvalid) for what the other side may not send, without a change.

  // Message `number` must come next. Its header step is done by the caller between the two calls, then it is taken:
  // never before, since `taken` is what the other side frees its messages by.
  void CheckNext(uint64_t number) const;
  // `complete` is to run once all bytes of the storages are in place; returned at once when there are none to wait for.
  // Without `ready` the storages have sizes, and no memory until Ready().
  std::optional<Task> Take(uint64_t number, Task complete, std::vector<wire::BulkTarget> storages, bool ready);
  uint64_t taken() const;

  // Memory for a message that was taken without it. A message that is no longer here is ignored. Its `complete` is
  // never returned by this: bytes come after it.
  void Ready(uint64_t number, std::vector<wire::BulkTarget> storages);
  // There will be no memory for it: what still comes of its bytes is read and forgotten, and counts as had. Its
  // `complete` is returned, to be told so by the caller; nothing when it is no longer here.
  std::optional<Task> Forget(uint64_t number);

  // A piece has begun: where its bytes go, nullptr for nowhere. It must belong to an arriving message and be missing
  // there, whole. OnPiece() of the same piece follows, or the end of the path. The memory is kept until then.
  std::byte* Place(const wire::BulkPiece& piece, uint64_t size);
  // All of its bytes have come: it is had, or forgotten when it went nowhere. `complete` when it was the last one.
  std::optional<Task> OnPiece(const wire::BulkPiece& piece, uint64_t size);

  // What to tell on a new path. Forgets what is owed on the old one, but for kNow of messages that it calls not ready.
  // REQUIRES: no connection of an older path is read any more.
  wire::ResumeState Resume();

  // Answers that are owed, in the order of their pieces, moved out; at most kMostPieceAnswers.
  std::vector<wire::PieceAnswer> TakeAnswers();
  bool owes_answers() const;
  bool owes_at_once() const;  // kLater or kNow is among them

  // The session leaves: messages are taken and pieces counted as had without memory; nothing completes any more. The
  // tasks of what was arriving are returned.
  std::vector<Task> Leave();
  // The session has ended: the same, and nothing is owed. The memory of a piece that is being placed is kept until
  // OnPiece() or Drop().
  std::vector<Task> End();
  // No connection is read any more: lets the memory go.
  void Drop();

  bool arriving() const;          // a message lacks bytes
  uint64_t awaited_bytes() const;  // announced and not yet in place

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradwire::rpc
