#include "paths_world.h"

#include <algorithm>
#include <utility>

namespace gradwire::rpc {

void PathsExplorer::AppendTold(const wire::ResumeState& told, std::string& key) {
  key += static_cast<char>(told.taken);
  for (const wire::ResumeState::Arriving& arriving : told.arriving) {
    key += static_cast<char>(arriving.message << 1 | arriving.ready);
    for (const wire::StorageRange& range : arriving.present) {
      key += static_cast<char>(range.offset >> 20);  // pieces
      key += static_cast<char>(range.size >> 20);
    }
    key += static_cast<char>(0xff);
  }
}

void PathsExplorer::AppendKey(const Paths& paths, const std::vector<Paths::LinkId>& order, std::string& key,
                              uint64_t low) {
  const auto link = [&](Paths::LinkId id) {
    key += static_cast<char>(id == 0 ? 0 : std::ranges::find(order, id) - order.begin() + 1);
  };
  const auto number = [&](uint64_t n) { key += static_cast<char>(n); };
  const auto path_number = [&](uint64_t n) { number(n + 1 > low ? n + 1 - low : 0); };
  number(static_cast<uint64_t>(paths.state_));
  number(paths.path_is_own_ | paths.path_has_begun_ << 1 | paths.dialing_ << 2 | paths.challenged_ << 3);
  link(paths.path_);
  link(paths.dialed_);
  path_number(paths.promise_.number);
  number(paths.promise_.connector.rank);
  path_number(paths.seen_);
  link(paths.taking_ ? paths.taking_->link : 0);
  if (paths.taking_) {
    path_number(paths.taking_->key.number);
    AppendTold(paths.taking_->told, key);
  }
  for (const Paths::LinkId id : paths.older_) link(id);
  number(0xff);
}

bool PathsExplorer::coherent(const Paths& paths) {
  using State = Paths::State;
  const bool dials = paths.dialing_ || paths.dialed_ != 0;
  if (paths.state_ == State::kEnded) return !dials && !paths.taking_;
  if (paths.promise_.number > paths.seen_) return false;
  if ((paths.path_ != 0) != (paths.state_ == State::kOpen)) return false;
  if (dials != (paths.state_ == State::kConnecting || paths.state_ == State::kProved)) return false;
  if (paths.taking_ && (paths.state_ != State::kBroken || paths.older_.empty())) return false;
  const bool told = paths.state_ == State::kProved || paths.state_ == State::kOpen;
  return !told || paths.older_.empty();
}

}  // namespace gradwire::rpc

namespace gradwire::sim::paths {

using rpc::PathsExplorer;

World::World(const PathsBounds& bounds)
    : sides{Side{.paths = Paths(kIds[0], kIds[1], !bounds.one_sided)}, Side{.paths = Paths(kIds[1], kIds[0], true)}},
      mistaken(bounds.mistake != PathsMistake::kNone) {}

std::string Connection::Key() const {
  std::string key;
  key += static_cast<char>(maker | cut << 1 | proved << 2);
  for (int side = 0; side < 2; ++side) {
    key += static_cast<char>(static_cast<int>(ends[side]) | adopted[side] << 2 | aborted[side] << 3);
    for (const Frame& frame : into[side]) {
      key += static_cast<char>(static_cast<int>(frame.kind) + 1);
      key += static_cast<char>(frame.code);
      key += static_cast<char>(frame.number);
      key += static_cast<char>(frame.taken);
    }
    key += '\0';
  }
  return key;
}

std::string World::Key() const {
  std::vector<std::pair<std::string, LinkId>> sorted;
  for (const Connection& connection : connections) sorted.emplace_back(connection.Key(), connection.id);
  std::ranges::sort(sorted);
  std::vector<LinkId> order;
  std::string key;
  for (const auto& [text, id] : sorted) {
    order.push_back(id);
    key += text;
  }
  for (const Side& side : sides) {
    PathsExplorer::AppendKey(side.paths, order, key);
    key += static_cast<char>(side.wanted | side.dialing << 1 | side.pausing << 2);
    key += static_cast<char>(side.taken);
    key += static_cast<char>(side.acked);
    key += static_cast<char>(side.next);
    if (mistaken) key += static_cast<char>(side.adopted_promise.number);
    if (mistaken) key += static_cast<char>(side.adopted_promise.connector.rank);
  }
  key += static_cast<char>(breaks);
  key += static_cast<char>(strangers | ended << 7);
  return key;
}

Connection* World::Find(LinkId id) {
  const auto found = std::ranges::find(connections, id, &Connection::id);
  return found == connections.end() ? nullptr : &*found;
}

void World::Put(int me, LinkId id, Frame frame) {
  Connection* connection = Find(id);
  if (connection == nullptr || connection->cut || connection->ends[1 - me] == End::kClosed) return;
  connection->into[1 - me].push_back(frame);
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

void World::Do(int me, const Paths::Action& action) {
  Side& side = sides[me];
  if (std::get_if<Paths::Dial>(&action)) {
    side.dialing = true;
  } else if (std::get_if<Paths::DropDial>(&action)) {
    Require(side.dialing, "DIAL: none is under way");
    side.dialing = false;
  } else if (const auto* prove = std::get_if<Paths::Prove>(&action)) {
    // Each break costs two rounds at most; of a mistake more than one round too many is wanted.
    const uint64_t allowed = (mistaken ? 3 : 1) + 2 * (breaks + strangers + ended) + 3 * strangers;
    Require(prove->number <= allowed, "TRIES: attempts go on without a break between them");
    Put(me, prove->link, {.kind = Kind::kProof, .number = static_cast<uint8_t>(prove->number), .taken = side.taken});
  } else if (const auto* adopt = std::get_if<Paths::Adopt>(&action)) {
    Adopt(me, *adopt);
  } else if (const auto* refuse = std::get_if<Paths::Refuse>(&action)) {
    Put(me, refuse->link,
        {.kind = Kind::kRefuse, .code = refuse->code, .number = static_cast<uint8_t>(refuse->number)});
    Close(me, refuse->link, false);
  } else if (const auto* abort = std::get_if<Paths::Abort>(&action)) {
    Close(me, abort->link, true);
  } else if (std::get_if<Paths::AwaitRetry>(&action)) {
    side.pausing = true;
  } else if (std::get_if<Paths::Refused>(&action)) {
    Require(false, "LOSS: refused, and the peer is there");
  }
}

void World::Adopt(int me, const Paths::Adopt& adopt) {
  Side& side = sides[me];
  const Side& peer = sides[1 - me];
  const auto taken = static_cast<uint8_t>(adopt.told.taken);
  if (!mistaken && peer.paths.state() != Paths::State::kEnded) {
    Require(taken == peer.taken, "EXACT: a side is told what is no longer so");
  }
  Require(taken >= side.acked, "RETAIN: a message is needed again, which is freed");
  side.acked = taken;
  side.next = static_cast<uint8_t>(taken + 1);
  side.pausing = false;
  side.adopted_promise = PathsExplorer::promise(side.paths);
  if (Connection* connection = Find(adopt.link)) connection->adopted[me] = true;
  if (adopt.accepted) Put(me, adopt.link, {.kind = Kind::kWelcome, .taken = side.taken});
  Put(me, adopt.link, {.kind = Kind::kAck});
}

}  // namespace gradwire::sim::paths
