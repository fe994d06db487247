#include "worker/quiesce.h"

#include <algorithm>
#include <utility>

#include "gradwire/value.h"
#include "worker/work_report.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

Payload RoundPayload(uint32_t round) { return EncodeValue<std::tuple<uint32_t>>({round}); }
uint32_t RoundOf(const Payload& payload) { return std::get<0>(DecodeValue<std::tuple<uint32_t>>(payload)); }

}  // namespace

Quiesce::Quiesce(Functions& internal_functions) { RegisterFunctions(internal_functions); }

void Quiesce::Attach(rpc::Rpc* rpc, std::function<uint64_t()> extra) {
  rpc_ = rpc;
  extra_ = std::move(extra);
}

void Quiesce::Join() {
  if (const rpc::Peer leader = Leader(); leader.id != rpc_->self().id) Tell(leader, "group.arrive", 0);
}

rpc::Peer Quiesce::Leader() const {
  std::lock_guard lock(mutex_);
  for (const rpc::Member& member : rpc_->members().All()) {
    if (!IsAway(member.peer.id.rank)) return member.peer;
  }
  return rpc_->self();
}

std::vector<rpc::Peer> Quiesce::LivePeers() const {
  std::vector<rpc::Peer> peers;
  std::lock_guard lock(mutex_);
  for (const rpc::Member& member : rpc_->members().All()) {
    if (member.peer.id != rpc_->self().id && !IsAway(member.peer.id.rank)) peers.push_back(member.peer);
  }
  return peers;
}

bool Quiesce::AnyAway() const {
  std::lock_guard lock(mutex_);
  return !gone_.empty() || !unreached_.empty();
}

void Quiesce::Finish(uint32_t round) {
  std::vector<rpc::Peer> waiting = LivePeers();
  {
    std::lock_guard lock(mutex_);
    if (finished_round_ >= round) return;
    finished_round_ = round;
    std::erase_if(waiting, [&](const rpc::Peer& peer) { return arrived_[peer.id.rank] != round; });
  }
  NoteChange();
  for (const rpc::Peer& peer : waiting) Tell(peer, "group.finish", round);
}

bool Quiesce::Finished(uint32_t round) const {
  std::lock_guard lock(mutex_);
  return finished_round_ >= round;
}

void Quiesce::OnArrived(IncomingCall& call) {
  const uint32_t round = RoundOf(call.args());
  const auto rank = static_cast<uint32_t>(call.caller().id);
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    uint32_t& arrived = arrived_[rank];
    arrived = std::max(arrived, round);
    if (round > 0) finished_round_ = std::max(finished_round_, round - 1);  // the arrived one has passed it
    over = round > 0 && finished_round_ >= round;
  }
  NoteChange();
  if (over) Tell(rpc_->members().Ranked(rank), "group.finish", round);
}

void Quiesce::RegisterFunctions(Functions& functions) {
  const FunctionOptions options{.is_ordered = true, .is_internal = true};
  functions.AddHandler(
      "group.arrive",
      [this](const std::shared_ptr<IncomingCall>& call) {
        OnArrived(*call);
        call->Reply(EncodeValue(true));
      },
      options);
  functions.AddHandler(
      "group.finish",
      [this](const std::shared_ptr<IncomingCall>& call) {
        Finish(RoundOf(call->args()));
        call->Reply(EncodeValue(true));
      },
      options);
  functions.AddHandler(
      "group.count",
      [this](const std::shared_ptr<IncomingCall>& call) {
        const Wave own = Own();
        call->Reply(
            EncodeValue<std::tuple<uint64_t, uint64_t, uint64_t, bool>>({own.sent, own.handled, own.extra, own.idle}));
      },
      options);
  functions.AddHandler(
      kWorkFunction, [this](const std::shared_ptr<IncomingCall>& call) { AnswerWork(*rpc_, *call); }, options);
  functions.AddHandler(
      "group.missing",
      [this](const std::shared_ptr<IncomingCall>& call) { call->Reply(EncodeValue(Missing(RoundOf(call->args())))); },
      options);
}

Quiesce::Wave Quiesce::Own() const {
  const rpc::Rpc::Counts counts = rpc_->counts();
  return {.sent = counts.sent,
          .handled = counts.handled,
          .extra = extra_ ? extra_() : 0,
          .idle = counts.pending == 0 && counts.serving == 0};
}

std::shared_ptr<Event> Quiesce::NextChange() {
  std::lock_guard lock(mutex_);
  return change_;
}

void Quiesce::NoteChange() {
  std::shared_ptr<Event> old = std::make_shared<Event>();
  {
    std::lock_guard lock(mutex_);
    old.swap(change_);
  }
  old->Set();
}

bool Quiesce::AwaitChange(const std::shared_ptr<Event>& change, Moment end) {
  {
    std::lock_guard lock(mutex_);
    if (!abandoned_.empty()) throw Error(ErrorCode::kDisconnected, abandoned_);
  }
  if (!end) return rpc_->executor()->Await(*change);
  const TimePoint now = rpc_->clock().Now();
  return now < *end && rpc_->executor()->Await(*change, *end - now);
}

void Quiesce::Wait(milliseconds timeout) {
  uint32_t round = 0;
  {
    std::lock_guard lock(mutex_);
    round = ++round_;
  }
  Moment end;
  if (timeout.count() > 0) end = rpc_->clock().Now() + std::min(timeout, kLongestLimit);
  for (bool over = false; !over;) {
    const rpc::Peer leader = Leader();
    over = leader.id == rpc_->self().id ? Lead(round, end) : Follow(leader, round, end);
  }
}

void Quiesce::Tell(const rpc::Peer& to, const char* function, uint32_t round) {
  rpc::Call call{.to = to.id, .function = function, .args = RoundPayload(round)};
  call.internal = true;
  call.short_completion = true;
  call.options.timeout = milliseconds(0);
  // A peer that is gone is noticed by the end of its session.
  rpc_->Send(std::move(call), [](Outcome) {});
}

std::vector<std::string> Quiesce::Missing(uint32_t round) const {
  std::vector<std::string> names;
  std::lock_guard lock(mutex_);
  for (const rpc::Member& member : rpc_->members().All()) {
    const uint32_t rank = member.peer.id.rank;
    const auto arrived = arrived_.find(rank);
    const bool here =
        rank == rpc_->self().id.rank ? round_ >= round : arrived != arrived_.end() && arrived->second >= round;
    if (!here && !IsAway(rank)) names.push_back(member.peer.name);
  }
  return names;
}

namespace {

[[noreturn]] void ThrowMissing(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(ErrorCode::kTimedOut, "shutdown timed out waiting for: " + list);
}

}  // namespace

void Quiesce::ThrowBusy() {
  throw Error(ErrorCode::kTimedOut, "shutdown timed out: all workers have arrived, but work is still going on" +
                                        DescribeWork(*rpc_, LivePeers()));
}

void Quiesce::AwaitArrivals(uint32_t round, Moment end) {
  for (;;) {
    const auto change = NextChange();
    const std::vector<std::string> missing = Missing(round);
    if (missing.empty() || Finished(round) || !Leads()) return;
    if (!AwaitChange(change, end)) ThrowMissing(missing);
  }
}

Quiesce::Wave Quiesce::Collect(const std::vector<rpc::Peer>& peers, Moment end) {
  Wave sum = Own();
  for (const rpc::Peer& peer : peers) {
    rpc::Call call{.to = peer.id, .function = "group.count", .args = RoundPayload(0)};
    call.internal = true;
    call.options.timeout = milliseconds(0);
    if (end) {
      const auto left = std::chrono::duration_cast<milliseconds>(*end - rpc_->clock().Now());
      call.options.timeout = std::max(left, milliseconds(1));
    }
    Outcome outcome = rpc_->SendAndWait(std::move(call));
    // It is there, but silent: stopped by a signal, for one.
    if (!outcome.ok() && outcome.failure().code == ErrorCode::kTimedOut) ThrowMissing({peer.name});
    if (!outcome.ok()) continue;  // gone
    const auto [sent, handled, extra, idle] =
        DecodeValue<std::tuple<uint64_t, uint64_t, uint64_t, bool>>(outcome.value());
    sum.sent += sent;
    sum.handled += handled;
    sum.extra += extra;
    sum.idle = sum.idle && idle;
  }
  return sum;
}

bool Quiesce::Lead(uint32_t round, Moment end) {
  // One that leads because others are gone has no session yet with some: it learns now who else is. Those that follow
  // another leader, which only this worker does not reach, tell this one when the round is over.
  for (const rpc::Peer& peer : LivePeers()) Tell(peer, "group.arrive", round);
  AwaitArrivals(round, end);
  std::optional<Wave> last;
  constexpr milliseconds kLongestPause{100};
  milliseconds pause{2};
  while (!Finished(round)) {
    if (!Leads()) return false;  // one who could not be reached for a while leads again
    const std::vector<rpc::Peer> peers = LivePeers();
    // What a lost worker had sent or handled is in nobody's sum: then only rest can be seen, not balance.
    const bool lost = AnyAway();
    const Wave wave = Collect(peers, end);
    if (wave.idle && last == wave && (lost || wave.sent == wave.handled)) break;
    const bool again_at_once = wave.idle && last != wave;
    last = wave;
    if (again_at_once) continue;
    const auto change = NextChange();
    const TimePoint until = rpc_->clock().Now() + pause;
    if (end && until >= *end) ThrowBusy();
    AwaitChange(change, until);
    pause = std::min(pause * 2, kLongestPause);
  }
  Finish(round);
  return true;
}

bool Quiesce::Follow(const rpc::Peer& leader, uint32_t round, Moment end) {
  const uint64_t reached_again = ReachedAgain();
  Tell(leader, "group.arrive", round);
  for (;;) {
    const auto change = NextChange();
    if (Finished(round)) return true;
    // One that could not reach this worker for a while may have ended the round without it: it is asked again.
    if (Leader().id != leader.id || ReachedAgain() != reached_again) return false;
    if (AwaitChange(change, end)) continue;
    rpc::Call call{.to = leader.id, .function = "group.missing", .args = RoundPayload(round)};
    call.internal = true;
    call.options.timeout = milliseconds(1000);
    Outcome outcome = rpc_->SendAndWait(std::move(call));
    if (!outcome.ok()) ThrowMissing({leader.name});
    const auto missing = DecodeValue<std::vector<std::string>>(outcome.value());
    if (missing.empty()) ThrowBusy();
    ThrowMissing(missing);
  }
}

void Quiesce::OnPeerEnded(uint32_t rank) {
  {
    std::lock_guard lock(mutex_);
    gone_.insert(rank);
  }
  NoteChange();
}

void Quiesce::OnPeerReach(uint32_t rank, bool reached) {
  {
    std::lock_guard lock(mutex_);
    if (reached) {
      unreached_.erase(rank);
      ++reached_again_;
    } else {
      unreached_.insert(rank);
    }
  }
  NoteChange();
}

uint64_t Quiesce::ReachedAgain() const {
  std::lock_guard lock(mutex_);
  return reached_again_;
}

bool Quiesce::IsAway(uint32_t rank) const { return gone_.count(rank) > 0 || unreached_.count(rank) > 0; }

void Quiesce::Abandon(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    abandoned_ = why;
  }
  NoteChange();
}

}  // namespace gradwire
