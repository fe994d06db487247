// Sessions and connections of Rpc: listening, connecting on first use, stopping.
#include <utility>

#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

constexpr std::chrono::seconds kConnectLimit{5};

}  // namespace

std::vector<std::string> Rpc::Impl::Listen() {
  std::vector<std::string> addresses;
  for (const auto& transport : options_.transports) {
    addresses.push_back(transport->Listen([weak = weak_from_this()](std::shared_ptr<transport::Connection> connection) {
      if (auto self = weak.lock()) {
        Link::Start(self, std::move(connection), nullptr);
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
    members_.Remove(member.peer.id);
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

void Rpc::Impl::Connect(const std::shared_ptr<Session>& session) {
  const std::optional<Member> member = members_.Find(session->peer().id);
  TryAddress(session, member ? member->addresses : std::vector<std::string>(), 0, "");
}

void Rpc::Impl::TryAddress(const std::shared_ptr<Session>& session, const std::vector<std::string>& addresses,
                           size_t index, const std::string& failures) {
  std::shared_ptr<transport::Transport> transport;
  for (; index < addresses.size(); ++index) {
    const std::string scheme = addresses[index].substr(0, addresses[index].find("://"));
    for (const auto& candidate : options_.transports) {
      if (candidate->scheme() == scheme) transport = candidate;
    }
    if (transport) break;
  }
  if (!transport) {
    return session->ConnectFailed({.code = ErrorCode::kUnreachable,
                                   .text = "worker '" + session->peer().name + "' cannot be reached: " +
                                           (failures.empty() ? "it has no address that this worker can use" : failures),
                                   .worker = session->peer().name});
  }
  transport->Connect(addresses[index], clock().Now() + kConnectLimit,
                     [self = shared_from_this(), session, addresses, index, failures](
                         std::shared_ptr<transport::Connection> connection, const Failure& failure) {
                       if (connection) return Link::Start(self, std::move(connection), session);
                       self->TryAddress(session, addresses, index + 1,
                                        failures + (failures.empty() ? "" : "; ") + failure.text);
                     });
}

std::string Rpc::Impl::stop_reason() const {
  std::lock_guard lock(sessions_mutex_);
  return stop_reason_;
}

Rpc::Counts Rpc::Impl::counts() const {
  return {.sent = sent_.load(),
          .handled = handled_.load(),
          .pending = pending_.external(),
          .serving = serving_.load(),
          .dropped = dropped_.load()};
}

void Rpc::Impl::Stop(const std::string& why) {
  std::unordered_map<WorkerId, std::shared_ptr<Session>> sessions;
  {
    std::lock_guard lock(sessions_mutex_);
    if (!stop_reason_.empty()) return;
    stop_reason_ = why;
    sessions.swap(sessions_);
  }
  for (const auto& [id, session] : sessions) {
    session->End({.code = ErrorCode::kDisconnected, .text = why, .worker = self().name}, /*announce=*/true);
  }
  for (const auto& pending : pending_.TakeAll()) {
    EndWithout(pending, {.code = ErrorCode::kDisconnected, .text = why, .worker = self().name});
  }
}

}  // namespace gradwire::rpc
