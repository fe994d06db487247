// Rpc as the host of its Group: letters, probes, and what a verdict does to sessions and calls (M1).
#include <atomic>
#include <utility>

#include "base/log.h"
#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

constexpr const char* kLetterFunction = "group.letter";

// Whether anybody listens at one of several addresses: each is asked at once.
struct Probing {
  std::atomic<size_t> open{0};  // not answered
  std::atomic<bool> over{false};
  std::atomic<bool> refused_everywhere{true};
  UniqueFunction<void(GroupHost::Probed)> done;

  void End(GroupHost::Probed probed) {
    if (!over.exchange(true)) done(probed);
  }
  void Failed(bool refused) {
    if (!refused) refused_everywhere = false;
    if (open.fetch_sub(1) > 1) return;
    End(refused_everywhere ? GroupHost::Probed::kRefused : GroupHost::Probed::kNoAnswer);
  }
};

}  // namespace

void Rpc::Impl::JoinGroup() {
  WorkerSet members{self().id};
  if (!options_.is_open) {
    for (const Member& member : members_.All()) members.insert(member.peer.id);
  }
  auto group = std::make_shared<Group>(Group::Options{.self = self().id,
                                                      .members = std::move(members),
                                                      .heartbeat_limit = options_.heartbeat_limit,
                                                      .clock = options_.clock,
                                                      .host = weak_from_this()});
  // Ordered and short: it is handled in the header step, behind no handler.
  options_.internal_functions->AddHandler(
      kLetterFunction,
      [weak = std::weak_ptr(group)](const std::shared_ptr<IncomingCall>& call) {
        const auto letter_for = weak.lock();
        if (!letter_for) return;
        letter_for->OnLetter(static_cast<const ServedCallImpl&>(*call).caller_id(), call->args().bytes);
      },
      {.is_ordered = true, .is_internal = true});
  std::lock_guard lock(sessions_mutex_);
  group_ = std::move(group);
}

void Rpc::Impl::StartWatching() { group()->Start(); }

std::shared_ptr<Group> Rpc::Impl::group() const {
  std::lock_guard lock(sessions_mutex_);
  return group_;
}

void Rpc::Impl::SendLetter(WorkerId to, std::string bytes) {
  Payload letter;
  letter.bytes = std::move(bytes);
  Notify(to, kLetterFunction, std::move(letter));
}

std::optional<TimePoint> Rpc::Impl::LastHeard(WorkerId worker) {
  std::lock_guard lock(sessions_mutex_);
  const auto at = sessions_.find(worker);
  if (at == sessions_.end()) return std::nullopt;
  return at->second->LastHeard();
}

void Rpc::Impl::Probe(WorkerId worker, Duration limit, UniqueFunction<void(Probed)> done) {
  const std::optional<Member> member = members_.Find(worker);
  std::vector<std::pair<std::string, std::shared_ptr<transport::Transport>>> ways;
  for (const std::string& address : member ? member->addresses : std::vector<std::string>()) {
    for (const auto& transport : options_.transports) {
      if (transport->scheme() == address.substr(0, address.find("://"))) ways.emplace_back(address, transport);
    }
  }
  if (ways.empty()) return done(Probed::kNoAnswer);
  const auto probing = std::make_shared<Probing>();
  probing->open = ways.size();
  probing->done = std::move(done);
  for (const auto& [address, transport] : ways) {
    transport->Connect(address, clock().Now() + limit,
                       [probing](std::shared_ptr<transport::Connection> connection, const Failure& why) {
                         if (!connection) return probing->Failed(why.code == ErrorCode::kDisconnected);
                         connection->Abort({.code = ErrorCode::kDisconnected, .text = "it only asked for the machine"});
                         probing->End(Probed::kAccepted);
                       });
  }
}

bool Rpc::Impl::IsGone(WorkerId member) {
  constexpr std::chrono::seconds kLimit{1};
  struct Answer {
    std::atomic<bool> refused{false};
    Event came;
  };
  const auto answer = std::make_shared<Answer>();
  Probe(member, kLimit, [answer](Probed probed) {
    answer->refused = probed == Probed::kRefused;
    answer->came.Set();
  });
  options_.executor->Await(answer->came);
  return answer->refused;
}

// A session that was never used is made to be ended, so that all that is sent later fails with the same reason.
void Rpc::Impl::EndSession(WorkerId worker, uint64_t epoch, const Failure& why) {
  const std::optional<Member> member = members_.Find(worker);
  if (!member) return;
  const std::shared_ptr<Session> session = SessionWith(member->peer);
  if (!session) return;
  const auto code = epoch == 0 ? wire::RefuseCode::kEnded : wire::RefuseCode::kRemoved;
  session->End(why, {.code = code, .epoch = epoch});
}

WorkerSet Rpc::Impl::Awaited() {
  WorkerSet awaited = pending_.Awaited();
  if (options_.awaited) awaited |= options_.awaited();
  return awaited;
}

// The session stays: what is queued arrives when the pair is whole again, and the cancels after it.
void Rpc::Impl::FailPair(WorkerId worker, const Failure& why) {
  const std::optional<Member> member = members_.Find(worker);
  const std::shared_ptr<Session> session = member ? SessionWith(member->peer) : nullptr;
  if (!session) return;
  for (const auto& pending : pending_.TakeAllTo(worker)) {
    const bool queued = pending->number != 0;
    if (queued && !pending->internal && !pending->keeps_result) SendCancel(*session, pending->id);
    FailCall(pending, why, queued);
  }
  if (options_.on_peer_reach) options_.on_peer_reach(member->peer, why);
}

void Rpc::Impl::OnReached(WorkerId worker) {
  const std::optional<Member> member = members_.Find(worker);
  if (member && options_.on_peer_reach) options_.on_peer_reach(member->peer, std::nullopt);
}

void Rpc::Impl::OnView(uint64_t epoch, const WorkerSet& members) {
  Log(LogLevel::kInfo, "worker '" + self().name + "' is in epoch " + std::to_string(epoch) + " of its group with " +
                           std::to_string(members.size()) + " workers");
}

// Nothing of what was sent is waited for: nobody takes it.
void Rpc::Impl::OnFenced(const Failure& why) {
  const auto sessions = TakeSessions(why.text, /*fenced=*/true);
  if (!sessions) return;
  // Before the waits end: whoever shuts down for that reason is not waited for any more.
  if (options_.on_fenced) options_.on_fenced(why);
  for (const auto& session : *sessions) session->End(why, {.code = wire::RefuseCode::kLeft});
  for (const auto& pending : pending_.TakeAll()) EndWithout(pending, why);
}

std::string Rpc::Impl::NameOf(WorkerId worker) const {
  const std::optional<Member> member = members_.Find(worker);
  return member ? member->peer.name : "of rank " + std::to_string(worker.rank);
}

}  // namespace gradwire::rpc
