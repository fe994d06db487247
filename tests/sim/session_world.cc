#include "session_world.h"

#include <algorithm>
#include <optional>

#include "wire/frame.h"

namespace gradwire::rpc {

using sim::session::SwitchedInbox;
using sim::session::SwitchedOutbox;

void SessionExplorer::AppendKey(const SwitchedOutbox& outbox, bool full, bool live, std::string& key) {
  key += static_cast<char>(outbox.ended_);
  key += static_cast<char>(full || outbox.acked_ == outbox.last_ ? outbox.acked_ : 0);
  if (full) key += static_cast<char>(outbox.sent_);
  if (live) key += static_cast<char>(outbox.next_);
  for (const auto& [number, sending] : outbox.sending_) {
    if (live) key += static_cast<char>(1 + static_cast<int>(sending.flow) + 4 * (sending.eager_bytes > 0));
    for (uint64_t at = 0; at < sending.storages[0].source.size; at += SwitchedOutbox::kPieceBytes) {
      const Interval piece{at, at + SwitchedOutbox::kPieceBytes};
      const bool missing = sending.storages[0].missing.Contains(piece);
      const bool handed_out = sending.storages[0].handed_out.Contains(piece);
      key += static_cast<char>(missing || (!live && handed_out) ? 2 : handed_out);
    }
  }
  key += '\x7f';
}

void SessionExplorer::AppendKey(const SwitchedInbox& inbox, bool live, bool owes, std::string& key) {
  key += static_cast<char>(inbox.taken_);
  key += static_cast<char>(inbox.leaving_ + 2 * inbox.ended_);
  for (const auto& [number, message] : inbox.arriving_) {
    const bool owes_now = message.owes_now && (live || owes);
    key += static_cast<char>(message.ready + 2 * message.forgotten + 4 * owes_now);
    for (const Interval& bytes : message.storages[0].present) {
      key += static_cast<char>(1 + bytes.begin / SwitchedOutbox::kPieceBytes);
      key += static_cast<char>(bytes.end / SwitchedOutbox::kPieceBytes);
    }
    key += '\0';
  }
  if (live) key += static_cast<char>(inbox.placing_ ? 1 + inbox.placing_->in_place : 0);
  if (live || owes) {
    for (const wire::PieceAnswer& answer : inbox.owed_) {
      key += static_cast<char>(answer.verdict);
      key += static_cast<char>(answer.range.offset / SwitchedOutbox::kPieceBytes);
    }
  }
  key += '\x7f';
}

bool SessionExplorer::had(const SwitchedOutbox& outbox, uint64_t message, Interval bytes) {
  const auto at = outbox.sending_.find(message);
  if (at == outbox.sending_.end()) return true;
  const auto& storage = at->second.storages[0];
  return !storage.missing.Overlaps(bytes) && !storage.handed_out.Overlaps(bytes);
}

bool SessionExplorer::handed_out(const SwitchedOutbox& outbox, uint64_t message, Interval bytes) {
  const auto at = outbox.sending_.find(message);
  return at != outbox.sending_.end() && at->second.storages[0].handed_out.Contains(bytes);
}

bool SessionExplorer::present(const SwitchedInbox& inbox, uint64_t message, Interval bytes) {
  if (inbox.taken_ < message) return false;
  const auto at = inbox.arriving_.find(message);
  return at == inbox.arriving_.end() || at->second.storages[0].present.Contains(bytes);
}

bool SessionExplorer::ready(const SwitchedInbox& inbox, uint64_t message) {
  const auto at = inbox.arriving_.find(message);
  return at == inbox.arriving_.end() || at->second.ready;
}

}  // namespace gradwire::rpc

namespace gradwire::sim::session {

using rpc::PathsExplorer;
using rpc::SessionExplorer;

namespace {

constexpr int kMostPieces = 4;

std::byte* Memory() {
  static std::vector<std::byte> memory(kMostPieces * SwitchedOutbox::kPieceBytes);  // of all bulk; nothing is copied
  return memory.data();
}

rpc::Interval BytesOf(int piece) {
  const uint64_t begin = static_cast<uint64_t>(piece) * SwitchedOutbox::kPieceBytes;
  return {begin, begin + SwitchedOutbox::kPieceBytes};
}

wire::BulkTarget Target(const World& w) {
  return {.data = Memory(), .size = static_cast<size_t>(w.bounds->pieces) * SwitchedOutbox::kPieceBytes, .keep = {}};
}

char Lowered(uint64_t number, uint64_t low) { return static_cast<char>(number + 1 > low ? number + 1 - low : 0); }

}  // namespace

void SwitchRules(SessionMistake mistake) {
  using M = SessionMistake;
  Outgoing::kFreeWhenAcknowledged = mistake != M::kFreedAtWrite;
  Outgoing::kBulkOutlivesHeader = mistake != M::kBulkFreedWithHeader;
  Outgoing::kGoOnFromTaken = mistake != M::kResumeFromSent;
  Outgoing::kForgetWhatWasAcknowledged = mistake != M::kResumeFromAcked;
  Outgoing::kResumeDecidesParked = mistake != M::kParkedOverResume;
  Incoming::kOnlyTheNextMessage = mistake != M::kNoFenceAndDuplicates;
  Incoming::kLaterOwesNow = mistake != M::kNowForgotten;
  Incoming::kNotReadyOwesNow = mistake != M::kNowBeforeWelcome;
  Incoming::kForgetAnswersOfOldPath = mistake != M::kAnswersOverResume;
  Incoming::kLeaverCounts = mistake != M::kLeaverCountsNothing;
  Incoming::kLeaverNeedsNoMemory = mistake != M::kLeaverParks;
}

Piece PieceOf(const World& w, int me, int piece) {
  const auto message = static_cast<uint64_t>(w.bounds->bulk[me]);
  if (SessionExplorer::had(w.sides[me].outbox, message, BytesOf(piece))) return Piece::kHad;
  const bool handed_out = SessionExplorer::handed_out(w.sides[me].outbox, message, BytesOf(piece));
  return handed_out ? Piece::kHandedOut : Piece::kMissing;
}

bool IsThere(const World& w, int me, int piece) {
  return SessionExplorer::present(w.sides[1 - me].inbox, static_cast<uint64_t>(w.bounds->bulk[me]), BytesOf(piece));
}

// --- Keys.

void Frame::AppendKey(uint64_t low, std::string& key) const {
  const bool of_path = kind == Kind::kProof || kind == Kind::kRefuse;
  key += static_cast<char>(1 + static_cast<int>(kind) + 16 * begun);
  key += static_cast<char>(code);
  key += of_path ? Lowered(number, low) : static_cast<char>(number);
  if (kind == Kind::kPiece || kind == Kind::kAnswer) {
    key += static_cast<char>(answer.verdict);
    key += static_cast<char>(answer.range.offset / SwitchedOutbox::kPieceBytes);
  }
  if (told) PathsExplorer::AppendTold(*told, key);
}

std::string Connection::Key(uint64_t low) const {
  std::string key;
  key += static_cast<char>(maker | cut << 1 | proved << 2);
  for (int side = 0; side < 2; ++side) {
    key += static_cast<char>(static_cast<int>(ends[side]) | adopted[side] << 2 | aborted[side] << 3);
    for (const Frame& frame : into[side]) frame.AppendKey(low, key);
    key += '\0';
  }
  return key;
}

std::string World::Key(bool full) const {
  uint64_t low = UINT64_MAX;  // of path numbers only the order counts
  for (const Side& side : sides) {
    if (side.paths.state() != Paths::State::kEnded) low = std::min(low, PathsExplorer::seen(side.paths));
  }
  for (const Connection& connection : connections) {
    for (const auto& row : connection.into) {
      for (const Frame& frame : row) {
        if (frame.kind == Kind::kProof) low = std::min(low, frame.number);
      }
    }
  }
  if (full || low == UINT64_MAX || low == 0) low = 1;
  std::vector<std::pair<std::string, LinkId>> sorted;
  for (const Connection& connection : connections) sorted.emplace_back(connection.Key(low), connection.id);
  std::ranges::sort(sorted);
  std::vector<LinkId> order;
  std::string key;
  for (const auto& [text, id] : sorted) {
    order.push_back(id);
    key += text;
  }
  for (int me = 0; me < 2; ++me) {
    const Side& side = sides[me];
    PathsExplorer::AppendKey(side.paths, order, key, low);
    key += static_cast<char>(static_cast<int>(side.phase) | side.dialing << 3 | side.pausing << 4 | side.retrying << 5 |
                             side.forgot << 6);
    const Connection* path = Find(side.paths.path());
    bool live = full || (path != nullptr && !path->cut);
    for (const Connection& c : connections) live = live || (c.adopted[me] && c.ends[me] == End::kClosing);
    SessionExplorer::AppendKey(side.outbox, full, live, key);
    SessionExplorer::AppendKey(side.inbox, live, side.paths.state() == Paths::State::kProved, key);
  }
  key += static_cast<char>(breaks);
  return key;
}

// --- Connections.

Connection* World::Find(LinkId id) {
  const auto found = std::ranges::find(connections, id, &Connection::id);
  return found == connections.end() ? nullptr : &*found;
}

void World::Put(int me, LinkId id, Frame frame) {
  Connection* connection = Find(id);
  if (connection == nullptr || connection->cut || connection->ends[1 - me] == End::kClosed) return;
  connection->into[1 - me].push_back(std::move(frame));
}

// Where messages are taken, some may still be until the read role ends. Otherwise nothing hangs on when that is.
void World::Close(int me, LinkId id, bool at_once) {
  Connection* connection = Find(id);
  if (connection == nullptr || connection->ends[me] != End::kOpen) return;
  connection->ends[me] = connection->adopted[me] ? End::kClosing : End::kClosed;
  connection->aborted[me] = at_once;
}

void World::Settle() {
  for (Connection& connection : connections) {
    const int acceptor = 1 - connection.maker;
    const auto is_proof = [](const Frame& frame) { return frame.kind == Kind::kProof; };
    const bool comes = std::ranges::any_of(connection.into[acceptor], is_proof);
    const bool may_come = comes || (connection.ends[connection.maker] == End::kOpen && !connection.cut);
    // What never proves itself is no concern of the session, and ends unseen.
    if (!connection.proved && !may_come) connection.ends[acceptor] = End::kClosed;
    for (int side = 0; side < 2; ++side) {
      if (connection.ends[side] == End::kClosed) connection.into[side].clear();
    }
  }
  std::erase_if(connections,
                [](const Connection& c) { return c.ends[0] == End::kClosed && c.ends[1] == End::kClosed; });
}

// --- What a session does.

World::World(const SessionBounds& given)
    : bounds(std::make_shared<const SessionBounds>(given)),
      sides{Side(Paths(paths::kIds[0], paths::kIds[1], true)), Side(Paths(paths::kIds[1], paths::kIds[0], true))} {
  for (int me = 0; me < 2; ++me) {
    for (int number = 1; number <= bounds->messages[me]; ++number) {
      wire::EncodedMessage message{.bytes = std::string(wire::FrameHeader::kSize, '\0'), .bulk = {}};
      if (number == bounds->bulk[me]) {
        message.bulk.push_back({.data = Memory(), .size = Target(*this).size, .keep = {}});
      }
      sides[me].outbox.Push(wire::FrameKind::kRequest, std::move(message));
    }
    Tell(me, [](Paths& p) { return p.OnWanted(); });
  }
}

void World::Tell(int me, const std::function<Paths::Actions(Paths&)>& event) {
  const Paths::Key before = PathsExplorer::promise(sides[me].paths);
  const Paths::Actions actions = event(sides[me].paths);
  if (mistaken(SessionMistake::kNone)) {
    Require(before <= PathsExplorer::promise(sides[me].paths), "PROMISE: it has sunk");
    Require(PathsExplorer::coherent(sides[me].paths), "ONE: a path, and another on its way");
  }
  for (const Paths::Action& action : actions) Do(me, action);
  if (sides[me].paths.state() != Paths::State::kBroken) sides[me].pausing = sides[me].retrying = false;
}

void World::Do(int me, const Paths::Action& action) {
  Side& side = sides[me];
  if (std::get_if<Paths::Dial>(&action)) {
    side.dialing = true;
  } else if (std::get_if<Paths::DropDial>(&action)) {
    side.dialing = false;
  } else if (const auto* prove = std::get_if<Paths::Prove>(&action)) {
    // Each break costs two rounds at most.
    Require(prove->number <= 1 + 2 * static_cast<uint64_t>(breaks) || !mistaken(SessionMistake::kNone),
            "TRIES: attempts go on without a break between them");
    Put(me, prove->link,
        {.kind = Kind::kProof,
         .number = prove->number,
         .told = std::make_shared<const wire::ResumeState>(side.inbox.Resume())});
  } else if (const auto* adopt = std::get_if<Paths::Adopt>(&action)) {
    Adopt(me, *adopt);
  } else if (const auto* refuse = std::get_if<Paths::Refuse>(&action)) {
    Put(me, refuse->link, {.kind = Kind::kRefuse, .code = refuse->code, .number = refuse->number});
    Close(me, refuse->link, false);
  } else if (const auto* abort = std::get_if<Paths::Abort>(&action)) {
    Close(me, abort->link, true);
    Connection* aborted = Find(abort->link);
    if (aborted == nullptr || aborted->ends[me] != End::kClosing) return;
    const bool fenced =
        bounds->mistake < SessionMistake::kNoFence || bounds->mistake > SessionMistake::kNoFenceAndWrittenTwice;
    if (bounds->slow && fenced) return;  // in a step of its own
    if (fenced) aborted->ends[me] = End::kClosed;
    Tell(me, [id = abort->link](Paths& p) { return p.OnClosed(id); });
  } else if (const auto* pause = std::get_if<Paths::AwaitRetry>(&action)) {
    side.pausing = true;
    side.retrying = pause->pause == Paths::Pause::kRetry;
  } else if (std::get_if<Paths::Refused>(&action)) {
    Require(side.phase == Phase::kLeaving, "LEAVE: a side takes a clean leave for a loss");
    Depart(me, Phase::kGone);
  }
}

void World::Adopt(int me, const Paths::Adopt& adopt) {
  Side& side = sides[me];
  CheckExact(me, adopt.told);
  side.outbox.Resume(adopt.told);
  Connection* connection = Find(adopt.link);
  if (connection != nullptr) connection->adopted[me] = true;
  if (adopt.accepted) {
    Put(me, adopt.link,
        {.kind = Kind::kWelcome, .told = std::make_shared<const wire::ResumeState>(side.inbox.Resume())});
  }
  Answer(me);
}

void World::CheckExact(int me, const wire::ResumeState& told) const {
  const Side& peer = sides[1 - me];
  if (!mistaken(SessionMistake::kNone) || peer.phase == Phase::kGone || peer.phase == Phase::kEnded) return;
  Require(told.taken == peer.inbox.taken(), "EXACT: a side is told what is no longer so");
  for (int piece = 0; piece < bounds->pieces && bounds->bulk[me] > 0; ++piece) {
    bool there = told.taken >= static_cast<uint64_t>(bounds->bulk[me]) && told.arriving.empty();
    for (const auto& arriving : told.arriving) {
      for (const wire::StorageRange& range : arriving.present) {
        there = there || (range.offset <= BytesOf(piece).begin && BytesOf(piece).end <= range.offset + range.size);
      }
    }
    Require(there == IsThere(*this, me, piece), "EXACT: a side is told of bytes what is no longer so");
  }
}

void World::Answer(int me) {
  Side& side = sides[me];
  if (side.paths.path() == 0) return;
  while (side.inbox.owes_answers()) {
    for (const wire::PieceAnswer& answer : side.inbox.TakeAnswers()) {
      Put(me, side.paths.path(), {.kind = Kind::kAnswer, .number = answer.message, .answer = answer});
    }
  }
}

void World::HandOut(int me) {
  Side& side = sides[me];
  std::vector<transport::OutFrame> frames;
  side.outbox.Next(1, side.inbox.taken(), frames);
  Require(frames.size() == 1, "QUIET: a frame that nobody needs");
  const wire::FrameHeader header = wire::DecodeHeader(frames[0].head.data());
  Frame frame{.kind = Kind::kMessage, .leave = header.kind == wire::FrameKind::kLeave, .number = header.number};
  if (header.kind == wire::FrameKind::kBulk) {
    const wire::BulkPiece piece = wire::DecodeBulkPiece(
        {frames[0].head.data() + wire::FrameHeader::kSize, frames[0].head_size - wire::FrameHeader::kSize});
    frame = {.kind = Kind::kPiece,
             .number = piece.message_number,
             .answer = {.message = piece.message_number,
                        .verdict = wire::Verdict::kHad,
                        .range = {piece.storage, piece.offset, header.bulk_size}}};
  }
  Put(me, side.paths.path(), std::move(frame));
}

bool World::lacks_memory(int me) const {
  const auto message = static_cast<uint64_t>(bounds->bulk[1 - me]);
  const Side& side = sides[me];
  return message > 0 && side.phase == Phase::kLive && side.inbox.taken() >= message &&
         !SessionExplorer::ready(side.inbox, message);
}

void World::HasMemory(int me) {
  sides[me].inbox.Ready(static_cast<uint64_t>(bounds->bulk[1 - me]), {Target(*this)});
  Answer(me);
}

void World::HasNone(int me) {
  sides[me].forgot = true;
  Completes(me, sides[me].inbox.Forget(static_cast<uint64_t>(bounds->bulk[1 - me])));
  Answer(me);
}

void World::Completes(int me, std::optional<int> message) {
  if (!message) return;
  Side& side = sides[me];
  const uint32_t bit = 1u << *message;
  Require((side.complete & bit) == 0, "ONCE: a message is complete twice");
  Require(side.done >= static_cast<uint64_t>(*message), "STEP: a message is complete before its header step");
  side.complete |= bit;
}

void World::TakeLeave(int me) {
  Side& side = sides[me];
  if (side.phase != Phase::kLive || side.inbox.taken() <= static_cast<uint64_t>(bounds->messages[1 - me])) return;
  if (side.inbox.arriving() && !mistaken(SessionMistake::kLeaveOvertakes)) return;
  side.phase = Phase::kLeft;
  Tell(me, [](Paths& p) { return p.End(); });
  side.outbox.End();
}

void World::Depart(int me, Phase phase) {
  Side& side = sides[me];
  side.phase = phase;
  Tell(me, [](Paths& p) { return p.End(); });
  side.outbox.End();
  side.inbox.End();
  side.dialing = false;
  for (Connection& connection : connections) connection.ends[me] = End::kClosed;
  if (const LinkId path = side.paths.path()) Tell(me, [path](Paths& p) { return p.OnClosed(path); });
}

}  // namespace gradwire::sim::session
