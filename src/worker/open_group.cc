#include "worker/open_group.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "base/event.h"
#include "gradwire/error.h"
#include "gradwire/value.h"
#include "worker/rendezvous.h"
#include "worker/work_report.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

constexpr const char* kJoinFunction = "group.join";    // the newcomer's record -> nothing
constexpr const char* kAliveFunction = "group.alive";  // nothing -> nothing
// Between taking its place and publishing its record a worker does nothing else: one that takes longer has died.
constexpr milliseconds kRecordLimit{3000};
constexpr milliseconds kTellLimit{5000};
constexpr milliseconds kAliveLimit{3000};  // less than an attempt to connect takes: silence is no refusal

std::string RecordKey(int64_t place) { return "gradwire/open/record/" + std::to_string(place); }

}  // namespace

OpenGroup::OpenGroup(std::shared_ptr<Store> store, const WorkerParts& parts, Functions& internal_functions)
    : store_(std::move(store)), parts_(parts) {
  const FunctionOptions options{.is_ordered = true, .is_internal = true};
  internal_functions.AddHandler(
      kJoinFunction,
      [this](const std::shared_ptr<IncomingCall>& call) {
        const auto record = std::get<0>(DecodeValue<std::tuple<std::string>>(call->args()));
        rpc::Member member = DecodeMember(record);
        if (member.peer.name != call->caller().name || member.peer.id.rank != call->caller().id) {
          throw Error(ErrorCode::kInvalid, "a record of another worker than its sender");
        }
        rpc_->members().AddUnlessTaken(std::move(member));  // until now it was there without its addresses
        call->Reply(EncodeValue(true));
      },
      options);
  internal_functions.AddHandler(
      kAliveFunction, [](const std::shared_ptr<IncomingCall>& call) { call->Reply(EncodeValue(true)); }, options);
}

std::string OpenGroup::JobKey() { return job_key_ = store_->CompareSet("gradwire/open/job_key", "", RandomJobKey()); }

void OpenGroup::Take(const std::string& key, const std::string& what) {
  std::string holder;
  for (;;) {
    const std::string now = store_->CompareSet(key, holder, own_);
    if (now == own_) break;
    // Whoever is found there next has come, or gone, meanwhile.
    if (!now.empty()) RefuseUnlessGone(DecodeMember(now), what);
    holder = now;
  }
  taken_.push_back(key);
}

void OpenGroup::RefuseUnlessGone(const rpc::Member& holder, const std::string& what) const {
  // One without a name joins nothing.
  rpc::Rpc::Options options;
  options.self = {.id = {.rank = rpc_->self().id.rank, .incarnation = std::random_device()()}, .name = ""};
  options.job_key = job_key_;
  options.clock = parts_.clock;
  options.executor = parts_.executor;
  options.transports = parts_.transports;
  options.functions = options.internal_functions = std::make_shared<Functions>();
  rpc::Rpc stranger(std::move(options));
  stranger.members().Add(holder);
  rpc::Call call{.to = holder.peer.id, .function = kAliveFunction, .args = EncodeValue(true)};
  call.internal = true;
  call.options.timeout = kAliveLimit;
  const Outcome outcome = stranger.SendAndWait(std::move(call));
  // Its process is not there, or another's is, or it is ending.
  const bool gone = !outcome.ok() && (outcome.failure().code == ErrorCode::kUnreachable ||
                                      outcome.failure().code == ErrorCode::kDisconnected);
  if (gone) return;
  throw Error(ErrorCode::kInvalid,
              "the worker " + what + " is not unique: another worker of this group has it, '" + holder.peer.name +
                  "' of rank " + std::to_string(holder.peer.id.rank) +
                  (outcome.ok() ? std::string() : ", and does not say whether it lives: " + outcome.failure().text));
}

std::optional<rpc::Member> OpenGroup::RecordOf(int64_t place, milliseconds limit) {
  const auto record = store_->Get(RecordKey(place), limit);
  if (!record && limit == kRecordLimit) store_->CompareSet(RecordKey(place), "", "");  // nobody waits for it again
  if (!record || record->empty()) return std::nullopt;                                 // died on its way, or has left
  return DecodeMember(*record);
}

void OpenGroup::Join(const rpc::Member& self, milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  const auto left = [&](milliseconds most) {
    if (limit.count() == 0) return most;
    const auto passed = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
    return std::clamp(limit - passed, milliseconds(1), most);
  };
  own_ = EncodeMember(self);
  Take("gradwire/open/name/" + self.peer.name, "name '" + self.peer.name + "'");
  Take("gradwire/open/rank/" + std::to_string(self.peer.id.rank), "rank " + std::to_string(self.peer.id.rank));
  const int64_t place = store_->Add("gradwire/open/places", 1);
  record_key_ = RecordKey(place);
  store_->Set(record_key_, own_);
  // Who comes later finds this record and tells this worker of itself.
  std::vector<rpc::Member> others;
  for (int64_t earlier = 1; earlier < place; ++earlier) {
    auto member = RecordOf(earlier, left(kRecordLimit));
    if (!member) continue;
    if (member->peer.name == self.peer.name || member->peer.id.rank == self.peer.id.rank) {
      store_->Set(RecordKey(earlier), "");  // whose place this worker has taken
    } else if (rpc_->members().AddUnlessTaken(*member)) {
      others.push_back(std::move(*member));
    }
  }
  TellAll(others, left(kTellLimit));
}

void OpenGroup::TellAll(const std::vector<rpc::Member>& others, milliseconds limit) {
  struct Told {
    std::atomic<size_t> left;
    Event all;
  };
  auto told = std::make_shared<Told>();
  told->left = others.size();
  for (const rpc::Member& member : others) {
    rpc::Call call{.to = member.peer.id, .function = kJoinFunction, .args = EncodeValue(std::tuple(own_))};
    call.internal = true;
    call.options.timeout = limit;
    const auto done = [this, told, id = member.peer.id](const Outcome& outcome) {
      if (!outcome.ok()) rpc_->members().Remove(id);  // it has left meanwhile
      if (--told->left == 0) told->all.Set();
    };
    try {
      rpc_->Send(std::move(call), done);
    } catch (const Error& error) {
      done(error.failure());  // it is no member any more
    }
  }
  if (!others.empty()) rpc_->executor()->Await(told->all);
}

void OpenGroup::Drain(milliseconds timeout) {
  const TimePoint end = rpc_->clock().Now() + timeout;
  constexpr milliseconds kLongestPause{100};
  milliseconds pause{2};
  for (;;) {
    const rpc::Rpc::Counts counts = rpc_->counts();
    if (counts.pending == 0 && counts.serving == 0) return;
    if (timeout.count() > 0 && rpc_->clock().Now() >= end) {
      throw Error(ErrorCode::kTimedOut, "shutdown timed out: " + std::to_string(counts.pending) +
                                            " calls of this worker and " + std::to_string(counts.serving) +
                                            " calls of others are still under way" + DescribeWork(*rpc_, {}));
    }
    Event never;
    rpc_->executor()->Await(never, pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

void OpenGroup::Leave() noexcept {
  try {
    if (!record_key_.empty()) store_->Set(record_key_, "");
    for (const std::string& key : taken_) store_->CompareSet(key, own_, "");
  } catch (const Error&) {
    // Nobody can join any more without the store either.
  }
}

}  // namespace gradwire
