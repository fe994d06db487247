// Sessions and connections of Rpc: listening, connecting on first use, stopping.
#include <atomic>
#include <utility>

#include "rpc/dial.h"
#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

constexpr std::chrono::seconds kLeaveLimit{1};
constexpr size_t kMostEnded = 100;

}  // namespace

std::vector<std::string> Rpc::Impl::Listen() {
  std::vector<std::string> addresses;
  for (const auto& transport : options_.transports) {
    addresses.push_back(transport->Listen([weak = weak_from_this()](std::shared_ptr<transport::Connection> connection) {
      if (auto self = weak.lock()) {
        Link::Accept(self, std::move(connection));
      } else {
        connection->Close({.code = ErrorCode::kDisconnected, .text = "this worker has ended"});
      }
    }));
  }
  return addresses;
}

std::optional<Member> Rpc::Impl::Admit(const Peer& stranger) {
  if (!options_.is_open) return std::nullopt;
  // It joins nothing: it asks whether this worker lives, before it takes its place.
  if (stranger.name.empty()) return Member{.peer = stranger};
  if (stranger.name == self().name || stranger.id.rank == self().id.rank) return std::nullopt;
  // One that was lost, or whose place another has taken, does not come back.
  if (const auto session = SessionWith(stranger); !session || session->ended_because()) return std::nullopt;
  // A newcomer has its name and rank from one that answers no more, even if this worker has not noticed yet.
  for (const Member& member : members_.All()) {
    if (member.peer.name != stranger.name && member.peer.id.rank != stranger.id.rank) continue;
    members_.Lose(member.peer.id);
    if (const auto session = SessionWith(member.peer)) {
      session->End({.code = ErrorCode::kDisconnected,
                    .text = "worker '" + member.peer.name + "' is gone: '" + stranger.name + "' has taken its place",
                    .worker = member.peer.name});
    }
  }
  members_.Add({.peer = stranger});
  return members_.Find(stranger.id);
}

std::shared_ptr<Session> Rpc::Impl::SessionWith(const Peer& peer) {
  std::lock_guard lock(sessions_mutex_);
  if (!stop_reason_.empty()) return nullptr;
  auto& session = sessions_[peer.id];
  if (!session) session = std::make_shared<Session>(shared_from_this(), peer);
  return session;
}

// A worker's session with itself is two objects: no one can be both sides of a promise (rpc/paths.h).
std::shared_ptr<Session> Rpc::Impl::AcceptingSession(const Peer& peer) {
  if (peer.id != self().id) return SessionWith(peer);
  std::lock_guard lock(sessions_mutex_);
  if (!stop_reason_.empty()) return nullptr;
  if (!own_accepting_) own_accepting_ = std::make_shared<Session>(shared_from_this(), peer, /*can_dial=*/false);
  return own_accepting_;
}

// What has ended says why to who calls or connects, but in an open group there is no end of the dead.
void Rpc::Impl::ForgetOldest(const std::shared_ptr<Session>& ended) {
  if (!options_.is_open) return;
  std::shared_ptr<Session> forgotten;  // destroyed without the lock
  std::lock_guard lock(sessions_mutex_);
  ended_.push_back(ended->peer().id);
  if (ended_.size() <= kMostEnded) return;
  if (const auto at = sessions_.find(ended_.front()); at != sessions_.end()) {
    forgotten = std::move(at->second);
    sessions_.erase(at);
  }
  ended_.pop_front();
}

void Rpc::Impl::Dial(const std::shared_ptr<Session>& session, uint64_t dial) {
  const std::optional<Member> member = members_.Find(session->peer().id);
  rpc::Dial::Begin(shared_from_this(), session, dial, member ? member->addresses : std::vector<std::string>(),
                   options_.transports);
}

std::optional<Failure> Rpc::Impl::Fenced() const {
  std::lock_guard lock(sessions_mutex_);
  if (!fenced_) return std::nullopt;
  return Failure{.code = ErrorCode::kDisconnected, .text = stop_reason_, .worker = self().name};
}

Failure Rpc::Impl::Stopped() const {
  std::lock_guard lock(sessions_mutex_);
  return {.code = ErrorCode::kInvalid,
          .text = "worker '" + self().name + "' makes no calls any more: " + stop_reason_,
          .worker = self().name};
}

Rpc::Counts Rpc::Impl::counts() const {
  return {.sent = sent_.load(),
          .handled = handled_.load(),
          .pending = pending_.external(),
          .serving = serving_.load(),
          .dropped = dropped_.load()};
}

size_t Rpc::Impl::sessions() const {
  std::lock_guard lock(sessions_mutex_);
  return sessions_.size();
}

// Of a worker that stops: there is none any more from now on. Nothing when it had stopped before.
std::optional<std::vector<std::shared_ptr<Session>>> Rpc::Impl::TakeSessions(const std::string& why, bool fenced) {
  std::vector<std::shared_ptr<Session>> sessions;
  std::lock_guard lock(sessions_mutex_);
  if (!stop_reason_.empty()) return std::nullopt;
  stop_reason_ = why;
  fenced_ = fenced;
  for (auto& [id, session] : sessions_) sessions.push_back(std::move(session));
  sessions_.clear();
  if (own_accepting_) sessions.push_back(std::exchange(own_accepting_, nullptr));
  return sessions;
}

// Those who are left are told, and what was sent before arrives: replies above all. Nobody waits longer than the leave
// limit for one that does not answer.
void Rpc::Impl::Stop(const std::string& why) {
  if (const auto watching = group()) watching->Stop();
  const std::optional<std::vector<std::shared_ptr<Session>>> taken = TakeSessions(why, /*fenced=*/false);
  if (!taken) return;
  const auto& sessions = *taken;
  const Failure reason{.code = ErrorCode::kDisconnected, .text = why, .worker = self().name};
  for (const auto& pending : pending_.TakeAll()) EndWithout(pending, reason);
  const auto all_gone = std::make_shared<Event>();
  const auto left = std::make_shared<std::atomic<size_t>>(sessions.size());
  for (const auto& session : sessions) {
    if (session->peer().id == self().id) {
      left->fetch_sub(1);
      continue;  // nobody is to be told
    }
    session->Leave([all_gone, left] {
      if (left->fetch_sub(1) == 1) all_gone->Set();
    });
  }
  if (left->load() > 0) options_.executor->Await(*all_gone, kLeaveLimit);
  for (const auto& session : sessions) session->End(reason, {.code = wire::RefuseCode::kLeft});
  for (const auto& pending : pending_.TakeAll()) EndWithout(pending, reason);
}

}  // namespace gradwire::rpc
