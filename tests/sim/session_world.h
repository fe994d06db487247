// Two sides with the tables of a session each, and the connections between them. No step is chosen here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "paths_world.h"
#include "rpc/inbox_inl.h"
#include "rpc/outbox_inl.h"
#include "rpc/paths.h"
#include "session_explore.h"

namespace gradwire::sim::session {

using paths::Broken;
using paths::Require;
using rpc::Paths;
using LinkId = Paths::LinkId;
using wire::RefuseCode;

// Rules of the tables, all on but one.
struct Outgoing {
  static inline bool kFreeWhenAcknowledged, kBulkOutlivesHeader, kGoOnFromTaken, kForgetWhatWasAcknowledged,
      kResumeDecidesParked;
};
struct Incoming {
  static inline bool kOnlyTheNextMessage, kLaterOwesNow, kNotReadyOwesNow, kForgetAnswersOfOldPath, kLeaverCounts,
      kLeaverNeedsNoMemory;
};
void SwitchRules(SessionMistake mistake);

using SwitchedOutbox = rpc::BasicOutbox<Outgoing>;
using SwitchedInbox = rpc::BasicInbox<Incoming, int>;  // the number of the message that completes

enum class Kind : uint8_t { kProof, kWelcome, kRefuse, kMessage, kPiece, kAnswer };
struct Frame {
  Kind kind;
  RefuseCode code = RefuseCode::kStale;
  bool begun = false;   // of a piece: its place has been asked for
  bool leave = false;   // of a message: the last one
  uint64_t number = 0;  // of a path or a message
  std::shared_ptr<const wire::ResumeState> told;
  wire::PieceAnswer answer;  // of a piece, the range

  void AppendKey(uint64_t low, std::string& key) const;
};

// One side's end of a connection. kClosing: given up, but its read role has not ended.
enum class End : uint8_t { kOpen, kClosing, kClosed };

struct Connection {
  LinkId id = 0;
  int maker = 0;  // which side connected
  bool cut = false;
  bool proved = false;  // the other side has read the Proof
  std::array<End, 2> ends{};
  std::array<bool, 2> adopted{};
  std::array<bool, 2> aborted{};  // this side gave it up at once: what it wrote may not arrive
  std::array<std::vector<Frame>, 2> into;

  std::string Key(uint64_t low) const;
};

// kLeft: the other side has left.
enum class Phase : uint8_t { kLive, kLeaving, kLeft, kGone, kEnded };

struct Side {
  explicit Side(Paths p) : paths(std::move(p)) {}

  Paths paths;
  SwitchedOutbox outbox;
  SwitchedInbox inbox;
  Phase phase = Phase::kLive;
  bool dialing = false;   // as told by Dial
  bool pausing = false;   // as told by AwaitRetry
  bool retrying = false;  // the pause follows a failure
  uint64_t done = 0;      // header steps
  uint32_t complete = 0;  // a bit for each message of the other side
  bool forgot = false;    // the memory for the other side's bulk was not to be had
};

class World {
 public:
  explicit World(const SessionBounds& bounds);

  std::string Key(bool full) const;  // equal for states that go on alike
  Connection* Find(LinkId id);
  const Connection* Find(LinkId id) const { return const_cast<World*>(this)->Find(id); }
  bool mistaken(SessionMistake mistake) const { return bounds->mistake == mistake; }
  uint64_t total(int me) const { return sides[me].outbox.last(); }
  bool lacks_memory(int me) const;  // for the bulk of the other side

  // Carries out what `me`'s Paths answers to an event, in order, and checks what is told.
  void Tell(int me, const std::function<Paths::Actions(Paths&)>& event);

  void Put(int me, LinkId id, Frame frame);
  void Close(int me, LinkId id, bool at_once);
  void Settle();                     // drops what nobody reads any more
  void Answer(int me);               // gives the answers that `me` owes, on its path
  void HandOut(int me);              // the next frame of the outbox
  void Depart(int me, Phase phase);  // for good
  void HasMemory(int me);
  void HasNone(int me);
  void Completes(int me, std::optional<int> message);
  void TakeLeave(int me);  // if the other side has left

  std::shared_ptr<const SessionBounds> bounds;
  std::array<Side, 2> sides;
  std::vector<Connection> connections;
  LinkId last_id = 0;
  int breaks = 0;  // so far

 private:
  void Do(int me, const Paths::Action& action);
  void Adopt(int me, const Paths::Adopt& adopt);
  void CheckExact(int me, const wire::ResumeState& told) const;
};

// Of the bulk of `me`'s message, as the sender sees it, and whether a piece is there, as the receiver does.
enum class Piece : uint8_t { kMissing, kHandedOut, kHad };
Piece PieceOf(const World& w, int me, int piece);
bool IsThere(const World& w, int me, int piece);

}  // namespace gradwire::sim::session

// What is private of the tables, to compare states.
namespace gradwire::rpc {
struct SessionExplorer {
  // Without `live` path what the next resume overwrites does not count; `owes` says whether what is owed outlives that.
  static void AppendKey(const sim::session::SwitchedOutbox& outbox, bool full, bool live, std::string& key);
  static void AppendKey(const sim::session::SwitchedInbox& inbox, bool live, bool owes, std::string& key);
  // Whether bytes of a storage that the message announced are there, or on their way; true for a message without.
  static bool had(const sim::session::SwitchedOutbox& outbox, uint64_t message, Interval bytes);
  static bool handed_out(const sim::session::SwitchedOutbox& outbox, uint64_t message, Interval bytes);
  static bool present(const sim::session::SwitchedInbox& inbox, uint64_t message, Interval bytes);
  static bool ready(const sim::session::SwitchedInbox& inbox, uint64_t message);
};
}  // namespace gradwire::rpc
