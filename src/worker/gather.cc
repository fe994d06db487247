#include "worker/gather.h"

#include <algorithm>
#include <iterator>

#include "gradwire/error.h"
#include "gradwire/value.h"
#include "rpc/surroundings.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPartFunction = "group.gather";     // key, part -> all parts
constexpr const char* kGiveUpFunction = "group.give_up";  // key, ms waited -> nothing; the gathering has ended then
constexpr const char* kWatchFunction = "group.watch";     // nothing -> nothing
constexpr milliseconds kAnswerLimit{1000}, kPause{20};

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

}  // namespace

Gather::Gather(Functions& internal_functions) {
  internal_functions.AddHandler(kPartFunction, [this](const std::shared_ptr<IncomingCall>& call) { OnPart(call); });
  internal_functions.AddHandler(kGiveUpFunction,
                                [this](const std::shared_ptr<IncomingCall>& call) {
                                  ValueReader reader(call->args());
                                  reader.BeginTuple();
                                  const Key key = GetGatherKey(reader);
                                  GiveUp(key, call->caller().name, reader.GetInt());
                                  call->Reply(EncodeValue(true));
                                },
                                {.is_internal = true});
  internal_functions.AddHandler(kWatchFunction,
                                [](const std::shared_ptr<IncomingCall>& call) { call->Reply(EncodeValue(true)); },
                                {.is_short = true, .is_internal = true});
}

void Gather::OnPart(const std::shared_ptr<IncomingCall>& call) {
  ValueReader reader(call->args());
  reader.BeginTuple();
  const Key key = GetGatherKey(reader);
  auto [name, part] = GetGatherPart(reader);
  const bool takes_part = std::any_of(key.first.begin(), key.first.end(),
                                      [&](const Who& who) { return who.first == name && name == call->caller().name; });
  if (!takes_part || key.first.front().second != rpc_->self().id) {
    throw Error(ErrorCode::kInvalid, "a part of a gathering for another worker, or of another");
  }
  // It could not reach this worker for a while, and has given up.
  call->OnCancelled([this, key, name] {
    FailAll(key, [&](const Gathering&) {
      return Failure{.code = ErrorCode::kCancelled,
                     .text = "worker '" + name + "', which others gathered with, does not wait any more",
                     .worker = name};
    });
  });
  Add(key, name, std::move(part), [call](const Outcome& outcome) {
    Outcome copy = outcome;
    copy.ok() ? call->Reply(std::move(copy.value())) : call->Fail(copy.failure());
  });
}

Gather::Key Gather::NextKey(std::vector<std::string> names) {
  if (names.empty()) {
    for (const rpc::Member& member : rpc_->members().All()) names.push_back(member.peer.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!std::binary_search(names.begin(), names.end(), rpc_->self().name)) {
    throw Error(ErrorCode::kInvalid,
                "worker '" + rpc_->self().name + "' is not among those that gather: " + Join(names));
  }
  Key key;
  for (const std::string& name : names) key.first.emplace_back(name, rpc_->members().Named(name).id);
  std::lock_guard lock(mutex_);
  if (abandoned_) throw Error(ErrorCode::kInvalid, "'" + rpc_->self().name + "' gathers no more: " + abandoned_->text);
  key.second = numbers_[key.first]++;
  return key;
}

std::optional<Duration> Gather::Limit(milliseconds timeout) const {
  const milliseconds own = timeout.count() < 0 ? rpc_->timeout() : timeout;
  std::optional<Duration> limit;
  if (own.count() > 0) limit = own;
  if (const auto deadline = rpc::CurrentDeadline(); deadline && timeout.count() != 0) {
    const Duration left = std::max(Duration::zero(), Duration(*deadline - rpc_->clock().Now()));
    limit = limit ? std::min(*limit, left) : left;
  }
  return limit;
}

// To this worker too, when it leads: such a call copies like any other, so that neither what has been passed nor what
// is returned is memory that answers to others still read.
CallHandle Gather::SendPart(const Key& key, const Payload& value, std::string shown_as, Completion answer) {
  rpc::Call call{.to = key.first.front().second, .function = kPartFunction};
  ValueWriter writer(call.args);
  writer.BeginTuple(3);
  PutGatherKey(writer, key);
  PutGatherPart(writer, rpc_->self().name, value);
  call.is_control = true;
  call.options.timeout = milliseconds(0);  // whoever has waited long enough ends the gathering for all
  call.options.shown_as = shown_as.empty() ? "all_gather" : std::move(shown_as);
  try {
    return rpc_->Send(std::move(call), std::move(answer));
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (int64_t& next = numbers_[key.first]; next == key.second + 1) --next;  // the others will count this one
    throw;
  }
}

GatherParts Gather::All(Payload value, std::vector<std::string> names, milliseconds timeout, std::string shown_as) {
  if (value.local) value = value.local->Encode();
  const std::optional<Duration> limit = Limit(timeout);
  // Each worker may be in a context of its own, and a part goes to all: it belongs to none of them.
  const Surroundings::Scope nothing{Surroundings()};
  const Key key = NextKey(std::move(names));
  const auto wait = std::make_shared<Wait>();
  const CallHandle call = SendPart(key, value, std::move(shown_as), [wait](Outcome outcome) {
    wait->outcome = std::move(outcome);
    wait->over.Set();
  });
  if (!wait->over.is_set() && !rpc_->executor()->Await(wait->over, limit)) {
    AskToGiveUp(key, std::chrono::duration_cast<milliseconds>(*limit).count(), call, *wait);
  }
  return DecodeGatherParts(wait->outcome->value());
}

void Gather::AskToGiveUp(const Key& key, int64_t ms, const CallHandle& call, Wait& wait) {
  const TimePoint end = rpc_->clock().Now() + kAnswerLimit;
  do {
    rpc::Call ask{.to = key.first.front().second, .function = kGiveUpFunction};
    ValueWriter writer(ask.args);
    writer.BeginTuple(3);
    PutGatherKey(writer, key);
    writer.PutInt(ms);
    ask.internal = true;
    ask.options.timeout = kAnswerLimit;
    try {
      rpc_->SendAndWait(std::move(ask));
    } catch (const Error&) {
      // It is no member any more, or this worker has ended: so has the call.
    }
    // Once more if it has overtaken the part itself.
    if (rpc_->executor()->Await(wait.over, kPause)) return;
  } while (rpc_->clock().Now() < end);
  call.Cancel();
  rpc_->executor()->Await(wait.over);
  if (wait.outcome->ok() || wait.outcome->failure().code != ErrorCode::kCancelled) return;
  const std::string& leader = key.first.front().first;
  wait.outcome = Failure{.code = ErrorCode::kTimedOut,
                         .text = "workers gathered for more than " + std::to_string(ms) + " ms, and worker '" + leader +
                                 "', by way of which they do, does not say who has not come",
                         .worker = leader};
}

// Also of one whose part is here: a shutdown must not wait for others to come and answer the dead.
std::optional<Failure> Gather::WhyNever(const Key& key) const {
  if (abandoned_) return abandoned_;
  for (const auto& [name, id] : key.first) {
    if (gone_.count(id) == 0) continue;
    return Failure{.code = ErrorCode::kDisconnected,
                   .text = "worker '" + name + "', which others gathered with, is gone",
                   .worker = name};
  }
  return std::nullopt;
}

std::optional<Failure> Gather::WhyNotNow(const Key& key) const {
  for (const auto& [name, id] : key.first) {
    if (const auto at = unreached_.find(id); at != unreached_.end()) return at->second;
  }
  return std::nullopt;
}

Gather::Gathering Gather::Gathering::Fail(const Failure& why) {
  failure = why;
  Gathering over;
  over.waiting.swap(waiting);
  for (auto& [name, part] : parts) over.parts[name] = std::exchange(part, {});
  return over;
}

void Gather::Add(const Key& key, const std::string& name, Payload part, Answer answer) {
  std::vector<Answer> waiting;
  std::optional<Outcome> outcome;
  std::map<Key, Gathering>::node_type done;  // destroyed without the lock
  std::vector<Who> unwatched;
  {
    std::lock_guard lock(mutex_);
    Gathering& gathering = gatherings_[key];
    // What came from one that was lost meanwhile counts no more: others may have failed for want of it.
    const auto from = std::find_if(key.first.begin(), key.first.end(), [&](const Who& w) { return w.first == name; });
    if (gone_.count(from->second) == 0) gathering.parts.insert_or_assign(name, std::move(part));
    gathering.waiting.push_back(std::move(answer));
    const bool complete = gathering.parts.size() == key.first.size();
    const std::optional<Failure> never = WhyNever(key);
    if (!gathering.failure) gathering.failure = WhyNotNow(key);
    if (gathering.failure || never) outcome = gathering.failure ? *gathering.failure : *never;
    if (!outcome && complete) outcome = EncodeGatherParts(gathering.parts);
    if (outcome) waiting.swap(gathering.waiting);
    if (complete || never) done = gatherings_.extract(key);
    for (const Who& who : key.first) {
      if (!outcome && gathering.parts.count(who.first) == 0 && watched_.insert(who.second).second) {
        unwatched.push_back(who);
      }
    }
  }
  for (Answer& each : waiting) each(*outcome);
  for (const Who& who : unwatched) Watch(who);
}

// Without a session this worker would not see the other's death.
void Gather::Watch(const Who& who) {
  if (who.second == rpc_->self().id) return;
  rpc::Call call{.to = who.second, .function = kWatchFunction, .args = EncodeValue(true)};
  call.internal = true;
  call.short_completion = true;
  call.options.timeout = milliseconds(0);
  try {
    rpc_->Send(std::move(call), [](Outcome) {});
  } catch (const Error&) {
    // One that has just joined opens a session with each itself; or this worker has ended.
    std::lock_guard lock(mutex_);
    watched_.erase(who.second);
  }
}

void Gather::GiveUp(const Key& key, const std::string& name, int64_t ms) {
  FailAll(key, [&](const Gathering& gathering) {
    std::vector<std::string> missing;
    for (const Who& who : key.first) {
      if (gathering.parts.count(who.first) == 0) missing.push_back(who.first);
    }
    return Failure{.code = ErrorCode::kTimedOut,
                   .text = "worker '" + name + "' gathered with others for more than " + std::to_string(ms) +
                           " ms, and these have not come: " + Join(missing),
                   .worker = rpc_->self().name};
  });
}

template <class F>
void Gather::FailAll(const Key& key, F why) {
  Gathering over;
  std::optional<Outcome> outcome;
  {
    std::lock_guard lock(mutex_);
    const auto it = gatherings_.find(key);
    if (it == gatherings_.end() || it->second.failure) return;
    const Failure failure = why(it->second);
    over = it->second.Fail(failure);
    outcome = failure;
  }
  for (Answer& each : over.waiting) each(*outcome);
}

void Gather::OnPeerEnded(const rpc::Peer& peer) {
  {
    std::lock_guard lock(mutex_);
    gone_.insert(peer.id);
  }
  FailHopeless();
}

void Gather::OnPeerReach(const rpc::Peer& peer, const std::optional<Failure>& why) {
  {
    std::lock_guard lock(mutex_);
    if (why) {
      unreached_.insert_or_assign(peer.id, *why);
    } else {
      unreached_.erase(peer.id);
    }
  }
  if (why) FailHopeless();
}

WorkerSet Gather::Awaited() const {
  WorkerSet awaited;
  std::lock_guard lock(mutex_);
  for (const auto& [key, gathering] : gatherings_) {
    if (gathering.failure) continue;
    for (const auto& [name, id] : key.first) {
      if (gathering.parts.count(name) == 0) awaited.insert(id);
    }
  }
  return awaited;
}

void Gather::OnFenced(const Failure& why) {
  {
    std::lock_guard lock(mutex_);
    if (!abandoned_) abandoned_ = why;
  }
  FailHopeless();
}

void Gather::FailHopeless() {
  std::vector<std::pair<Gathering, Failure>> lost;
  {
    std::lock_guard lock(mutex_);
    for (auto it = gatherings_.begin(); it != gatherings_.end();) {
      const auto here = it++;
      if (auto never = WhyNever(here->first)) {
        // Who comes later hears of it too: the peer does not come back.
        lost.emplace_back(std::move(here->second), *never);
        gatherings_.erase(here);
      } else if (auto why = WhyNotNow(here->first); why && !here->second.failure) {
        lost.emplace_back(here->second.Fail(*why), *why);
      }
    }
  }
  if (lost.empty()) return;
  // Answers are encoded and sent, parts destroyed: not under a role (O2).
  rpc_->executor()->Post([lost = std::move(lost)]() mutable {
    for (auto& [gathering, failure] : lost) {
      for (Answer& each : gathering.waiting) each(Outcome(failure));
    }
  });
}

void Gather::Abandon(const std::string& why) {
  std::map<Key, Gathering> ended;
  Outcome outcome{Failure{.code = ErrorCode::kDisconnected, .text = why, .worker = rpc_->self().name}};
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    abandoned_ = outcome.failure();
    ended.swap(gatherings_);
  }
  for (auto& [key, gathering] : ended) {
    for (Answer& each : gathering.waiting) each(outcome);
  }
}

size_t Gather::open() const {
  std::lock_guard lock(mutex_);
  return gatherings_.size();
}

}  // namespace gradwire
