#include "worker/gather.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gradwire/error.h"
#include "gradwire/value.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

constexpr const char* kGatherFunction = "group.gather";  // names, number, part -> all parts

// A part keeps its own tables when it travels among others: (name, bytes, tensors, references).
void PutPart(ValueWriter& writer, const std::string& name, const Payload& part) {
  writer.BeginTuple(4);
  writer.PutString(name);
  writer.PutBytes(part.bytes);
  writer.BeginList(part.tensors.size());
  for (const at::Tensor& tensor : part.tensors) writer.PutTensor(tensor);
  writer.BeginList(part.references.size());
  for (const auto& reference : part.references) writer.PutReference(reference);
}

std::pair<std::string, Payload> GetPart(ValueReader& reader) {
  Payload part;
  if (reader.BeginTuple() != 4) throw Error(ErrorCode::kInvalid, "a part of a gathering is malformed");
  std::string name(reader.GetString());
  part.bytes = reader.GetBytes();
  for (size_t count = reader.BeginList(); count > 0; --count) part.tensors.push_back(reader.GetTensor());
  reader.End();
  for (size_t count = reader.BeginList(); count > 0; --count) part.references.push_back(reader.GetReference());
  reader.End();
  reader.End();
  return {std::move(name), std::move(part)};
}

Payload EncodeParts(const Gather::Parts& parts) {
  Payload payload;
  ValueWriter writer(payload);
  writer.BeginList(parts.size());
  for (const auto& [name, part] : parts) PutPart(writer, name, part);
  return payload;
}

Gather::Parts DecodeParts(const Payload& payload) {
  Gather::Parts parts;
  ValueReader reader(payload);
  for (size_t count = reader.BeginList(); count > 0; --count) parts.insert(GetPart(reader));
  reader.End();
  return parts;
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

}  // namespace

Gather::Gather(Functions& internal_functions) {
  internal_functions.AddHandler(kGatherFunction, [this](const std::shared_ptr<IncomingCall>& call) {
    ValueReader reader(call->args());
    Key key;
    reader.BeginTuple();
    for (size_t count = reader.BeginList(); count > 0; --count) key.first.emplace_back(reader.GetString());
    reader.End();
    key.second = reader.GetInt();
    auto [name, part] = GetPart(reader);
    if (name != call->caller().name || key.first.empty() || key.first.front() != rpc_->self().name) {
      throw Error(ErrorCode::kInvalid, "a part of a gathering for another worker, or of another");
    }
    Add(key, name, std::move(part), [call](const Outcome& outcome) {
      Outcome copy = outcome;
      copy.ok() ? call->Reply(std::move(copy.value())) : call->Fail(copy.failure());
    });
  });
}

int64_t Gather::NextNumber(const std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  return numbers_[names]++;
}

void Gather::Add(const Key& key, const std::string& name, Payload part, Answer answer) {
  std::vector<Answer> waiting;
  std::optional<Outcome> outcome;
  {
    std::lock_guard lock(mutex_);
    Gathering& gathering = gatherings_[key];
    gathering.parts.insert_or_assign(name, std::move(part));
    gathering.waiting.push_back(std::move(answer));
    const bool complete = gathering.parts.size() == key.first.size();
    if (!complete && !gathering.failure) return;
    outcome = gathering.failure ? Outcome(*gathering.failure) : Outcome(EncodeParts(gathering.parts));
    waiting.swap(gathering.waiting);
    if (complete) gatherings_.erase(key);
  }
  for (Answer& each : waiting) each(*outcome);
}

void Gather::Fail(const Key& key, const Failure& failure) {
  std::vector<Answer> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto it = gatherings_.find(key);
    if (it == gatherings_.end() || it->second.failure) return;
    it->second.failure = failure;
    waiting.swap(it->second.waiting);
  }
  for (Answer& each : waiting) each(Outcome(failure));
}

Failure Gather::TimedOut(const Key& key, milliseconds timeout) const {
  std::vector<std::string> missing;
  std::lock_guard lock(mutex_);
  const auto it = gatherings_.find(key);
  std::copy_if(key.first.begin(), key.first.end(), std::back_inserter(missing),
               [&](const std::string& name) { return it == gatherings_.end() || it->second.parts.count(name) == 0; });
  return {.code = ErrorCode::kTimedOut,
          .text = "workers gathered for more than " + std::to_string(timeout.count()) +
                  " ms, and these have not come: " + Join(missing),
          .worker = rpc_->self().name};
}

Gather::Parts Gather::Lead(const Key& key, Payload value, milliseconds timeout) {
  struct Wait {
    Event over;
    std::optional<Outcome> outcome;
  };
  auto wait = std::make_shared<Wait>();
  Add(key, rpc_->self().name, std::move(value), [wait](const Outcome& outcome) {
    wait->outcome = outcome;
    wait->over.Set();
  });
  const std::optional<Duration> limit = timeout.count() == 0 ? std::nullopt : std::optional<Duration>(timeout);
  if (!wait->over.is_set() && !rpc_->executor()->Await(wait->over, limit)) {
    Fail(key, TimedOut(key, timeout));
    rpc_->executor()->Await(wait->over);  // set by now, by this failure or by the last part
  }
  return DecodeParts(wait->outcome->value());
}

Gather::Parts Gather::All(Payload value, std::vector<std::string> names, milliseconds timeout) {
  if (names.empty()) {
    for (const rpc::Member& member : rpc_->members().All()) names.push_back(member.peer.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (!std::binary_search(names.begin(), names.end(), rpc_->self().name)) {
    throw Error(ErrorCode::kInvalid,
                "worker '" + rpc_->self().name + "' is not among those that gather: " + Join(names));
  }
  if (value.local) value = value.local->Encode();
  if (timeout.count() < 0) timeout = rpc_->timeout();
  const rpc::Peer leader = rpc_->members().Named(names.front());
  const Key key{names, NextNumber(names)};
  if (leader.id == rpc_->self().id) return Lead(key, std::move(value), timeout);

  rpc::Call call{.to = leader.id, .function = kGatherFunction};
  ValueWriter writer(call.args);
  writer.BeginTuple(3);
  writer.BeginList(names.size());
  for (const std::string& name : names) writer.PutString(name);
  writer.PutInt(key.second);
  PutPart(writer, rpc_->self().name, value);
  call.options.timeout = timeout;
  Outcome outcome = rpc_->SendAndWait(std::move(call));
  return DecodeParts(outcome.value());
}

void Gather::OnPeerEnded(const rpc::Peer& peer) {
  std::vector<Key> lost;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, gathering] : gatherings_) {
      const bool awaited = std::binary_search(key.first.begin(), key.first.end(), peer.name);
      if (awaited && gathering.parts.count(peer.name) == 0) lost.push_back(key);
    }
  }
  if (lost.empty()) return;
  // Answers are encoded and sent: not under a role (O2).
  rpc_->executor()->Post([this, lost, name = peer.name] {
    for (const Key& key : lost) {
      Fail(key, {.code = ErrorCode::kDisconnected,
                 .text = "worker '" + name + "', which others gathered with, is gone",
                 .worker = name});
    }
  });
}

}  // namespace gradwire
