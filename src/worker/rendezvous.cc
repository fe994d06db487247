#include "worker/rendezvous.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "base/log.h"
#include "gradwire/error.h"
#include "gradwire/value.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Record = std::tuple<int64_t, std::string, uint32_t, uint32_t, std::vector<std::string>, std::string>;
constexpr int64_t kRecordVersion = 1;
constexpr const char* kReady = "ready";
constexpr const char* kAttempts = "gradwire/attempts";  // how many rank 0 has begun
constexpr const char* kBegun = "begun";                 // -> the world size
constexpr const char* kGroup = "group";                 // -> what has become of it
constexpr milliseconds kLook{500};

rpc::Member DecodeRanked(const std::string& record, uint32_t rank) {
  const std::string publisher = "rank " + std::to_string(rank) + " published ";
  rpc::Member member;
  try {
    member = DecodeMember(record);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalid, publisher + error.failure().text);
  }
  if (member.peer.id.rank != rank) throw Error(ErrorCode::kInvalid, publisher + "the record of another rank");
  return member;
}

// What has become of an attempt.
struct Meeting {
  std::vector<rpc::Member> members;  // as many as there were when it failed
  std::optional<Failure> failure;
};
using MeetingRecord = std::tuple<int64_t, bool, int64_t, std::string, std::vector<std::string>>;

std::string EncodeMeeting(const Meeting& group) {
  std::vector<std::string> members;
  for (const rpc::Member& member : group.members) members.push_back(EncodeMember(member));
  const Failure failure = group.failure.value_or(Failure{});
  return EncodeValue<MeetingRecord>(
             {kRecordVersion, group.failure.has_value(), static_cast<int64_t>(failure.code), failure.text, members})
      .bytes;
}

Meeting DecodeMeeting(const std::string& record) {
  const std::string unreadable = "rank 0 published a group that this version of gradwire cannot read";
  Payload payload;
  payload.bytes = record;
  MeetingRecord fields;
  try {
    fields = DecodeValue<MeetingRecord>(payload);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalid, unreadable + ": " + error.failure().text);
  }
  const auto& [version, failed, code, text, members] = fields;
  if (version != kRecordVersion) throw Error(ErrorCode::kInvalid, unreadable);
  Meeting group;
  if (failed) group.failure = Failure{.code = static_cast<ErrorCode>(code), .text = text};
  for (const std::string& member : members) group.members.push_back(DecodeMember(member));
  return group;
}

void CheckNames(const std::vector<rpc::Member>& members) {
  std::map<std::string, uint32_t> names;
  for (const rpc::Member& member : members) {
    const auto [first, added] = names.emplace(member.peer.name, member.peer.id.rank);
    if (added) continue;
    throw Error(ErrorCode::kInvalid, "the worker name '" + member.peer.name + "' is not unique: ranks " +
                                         std::to_string(first->second) + " and " + std::to_string(member.peer.id.rank) +
                                         " have it");
  }
}

}  // namespace

std::string EncodeMember(const rpc::Member& member) {
  return EncodeValue<Record>({kRecordVersion, member.peer.name, member.peer.id.rank, member.peer.id.incarnation,
                              member.addresses, member.published})
      .bytes;
}

rpc::Member DecodeMember(const std::string& record) {
  const std::string unreadable = "a record that this version of gradwire cannot read";
  Payload payload;
  payload.bytes = record;
  Record fields;
  try {
    fields = DecodeValue<Record>(payload);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalid, unreadable + ": " + error.failure().text);
  }
  const auto& [version, name, rank, incarnation, addresses, published] = fields;
  if (version != kRecordVersion) throw Error(ErrorCode::kInvalid, unreadable);
  return {.peer = {.id = {.rank = rank, .incarnation = incarnation}, .name = name},
          .addresses = addresses,
          .published = published};
}

std::string RandomJobKey() {
  std::random_device device;
  std::string key(32, '\0');
  for (char& c : key) c = "0123456789abcdef"[device() & 15];
  return key;
}

void MarkGroup(Store& store, bool is_open) {
  const std::string own = is_open ? "open" : "fixed";
  if (store.CompareSet("gradwire/kind", "", own) != own) {
    throw Error(ErrorCode::kInvalid,
                "RPC group mixes statically and dynamically initialized members which is not supported. Either all or "
                "none of them give a world_size");
  }
}

void CheckWorkerName(const std::string& name) {
  const bool good = !name.empty() && name.size() < 128 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
           c == '-';
  });
  if (good) return;
  throw Error(ErrorCode::kInvalid,
              "Worker name '" + name + "' is not allowed: it must match [A-Za-z0-9_:-]+ and have 1 to 127 characters");
}

Rendezvous::Rendezvous(Store& store, Options options)
    : store_(store), options_(options), begin_(steady_clock::now()), tell_at_(begin_ + options_.tell_every) {
  if (options_.rank != 0) return;
  attempt_ = store_.Add(kAttempts, 1);
  store_.Set(Key(kBegun), std::to_string(options_.world_size));
}

std::string Rendezvous::KeyOf(int64_t attempt, const std::string& name) {
  return "gradwire/" + std::to_string(attempt) + "/" + name;
}

milliseconds Rendezvous::Left() const {
  if (options_.limit.count() == 0) return std::chrono::hours(24 * 365);
  const auto passed = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin_);
  return std::max(milliseconds(0), options_.limit - passed);
}

std::string Rendezvous::JobKey() { return store_.CompareSet("gradwire/job_key", "", RandomJobKey()); }

std::string Rendezvous::Waiting(const std::vector<uint32_t>& missing) const {
  std::string ranks;
  for (size_t i = 0; i < missing.size() && i < 20; ++i) ranks += (i ? ", " : "") + std::to_string(missing[i]);
  if (missing.size() > 20) ranks += ", ...";
  return "the group of " + std::to_string(options_.world_size) + " workers; missing: rank " + ranks;
}

// Of the present attempt. Where all are there, or it is over, it is rank 0 that is waited for.
std::vector<uint32_t> Rendezvous::Missing(bool is_open) {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) continue;
    if ((rank == 0 && !is_open) || !store_.Get(WorkerKey(rank), milliseconds(0))) missing.push_back(rank);
  }
  if (missing.empty()) missing.push_back(0);
  return missing;
}

// For a look's time. Says now and then for whom it waits.
std::optional<std::string> Rendezvous::Await(const std::string& key, bool is_open) {
  auto value = store_.Get(key, std::min(Left(), kLook));
  if (!value && steady_clock::now() >= tell_at_) {
    tell_at_ += options_.tell_every;
    const auto waited = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin_);
    Log(LogLevel::kWarning,
        "rank " + std::to_string(options_.rank) + " has waited " + std::to_string(waited.count()) + " ms for " +
            Waiting(Missing(is_open)) + "; it waits " +
            (options_.limit.count() == 0 ? "for ever"
                                         : "up to " + std::to_string(options_.limit.count()) + " ms in all") +
            " (init_timeout, or rpc_timeout where that is given)");
  }
  return value;
}

std::vector<rpc::Member> Rendezvous::Exchange(const rpc::Member& self) {
  return options_.rank == 0 ? Collect(self) : Follow(self);
}

// On rank 0: whoever has answered the attempt, by rank. A record that cannot be read is left out, or throws.
std::vector<rpc::Member> Rendezvous::Present(const rpc::Member& self, bool leaves_out) {
  std::vector<rpc::Member> present{self};
  for (uint32_t rank = 1; rank < options_.world_size; ++rank) {
    const auto record = store_.Get(WorkerKey(rank), milliseconds(0));
    if (!record) continue;
    try {
      present.push_back(DecodeRanked(*record, rank));
    } catch (const Error&) {
      if (!leaves_out) throw;
    }
  }
  return present;
}

// On rank 0. What has become of the attempt is told to all whose records it has.
std::vector<rpc::Member> Rendezvous::Collect(const rpc::Member& self) {
  Meeting group;
  store_.Set(WorkerKey(0), EncodeMember(self));
  try {
    for (uint32_t rank = 1; rank < options_.world_size; ++rank) {
      while (!Await(WorkerKey(rank), /*is_open=*/true)) {
        if (Left().count() > 0) continue;
        throw Error(ErrorCode::kTimedOut, "rank 0 waited " + std::to_string(options_.limit.count()) + " ms for " +
                                              Waiting(Missing(/*is_open=*/true)));
      }
    }
    group.members = Present(
        self, /*leaves_out=*/false);  // as they are now: one may have died and come again while others were waited for
    CheckNames(group.members);
  } catch (const Error& error) {
    group.failure = error.failure();
    try {
      group.members = Present(self, /*leaves_out=*/true);
      store_.Set(Key(kGroup), EncodeMeeting(group));
    } catch (const Error&) {
      // Nobody serves the store: the others find out by themselves.
    }
    throw;
  }
  store_.Set(Key(kGroup), EncodeMeeting(group));
  return std::move(group.members);
}

// Whether the present attempt is one that this worker may be a part of; its record stands there then.
bool Rendezvous::Answer(const rpc::Member& self) {
  if (attempt_ > 0) {
    const auto begun = store_.Get(Key(kBegun), std::min(Left(), kLook));
    if (begun != std::to_string(options_.world_size)) return false;
  }
  store_.Set(WorkerKey(options_.rank), EncodeMember(self));
  return attempt_ > 0;
}

// On the others. An attempt may be that of a rank 0 that has died, or be over: then it is the next one that counts.
std::vector<rpc::Member> Rendezvous::Follow(const rpc::Member& self) {
  bool is_open = Answer(self);  // before any attempt: so that others can see it
  do {
    if (const int64_t newest = store_.Add(kAttempts, 0); newest != attempt_) {
      attempt_ = newest;
      is_open = Answer(self);
    }
    if (!is_open) {
      Await(KeyOf(attempt_ + 1, kBegun), is_open);
    } else if (const auto record = Await(Key(kGroup), is_open)) {
      Meeting group = DecodeMeeting(*record);
      const bool mine = std::any_of(group.members.begin(), group.members.end(),
                                    [&](const rpc::Member& member) { return member.peer.id == self.peer.id; });
      if (mine && group.failure) throw Error(*group.failure);
      if (mine) return std::move(group.members);
      is_open = false;
    }
  } while (Left().count() > 0);
  std::string text = "rank " + std::to_string(options_.rank) + " waited " + std::to_string(options_.limit.count()) +
                     " ms for " + Waiting(Missing(is_open));
  const auto begun = attempt_ > 0 ? store_.Get(Key(kBegun), milliseconds(0)) : std::nullopt;
  if (begun && *begun != std::to_string(options_.world_size)) {
    text += ". Rank 0 began a group of " + *begun + " workers";
  }
  throw Error(ErrorCode::kTimedOut, text);
}

// Each looks after the next rank meanwhile, and tells all what it finds. One that starts again is of another attempt:
// whoever waits for it waits in vain.
void Rendezvous::AwaitAllReady(const std::function<bool(uint32_t rank)>& is_gone) {
  const std::string key = Key("all_ready");
  if (store_.Add(Key("ready"), 1) == static_cast<int64_t>(options_.world_size)) store_.CompareSet(key, "", kReady);
  const uint32_t next = (options_.rank + 1) % options_.world_size;
  const steady_clock::time_point end = steady_clock::now() + Left();
  std::optional<std::string> outcome;
  do {
    outcome = store_.Get(key, std::min(Left(), kLook));
    if (!outcome && next != options_.rank && is_gone(next)) outcome = store_.CompareSet(key, "", std::to_string(next));
  } while (!outcome && steady_clock::now() < end);
  if (!outcome) {
    throw Error(ErrorCode::kTimedOut, "all workers published their records, but not all have read them in " +
                                          std::to_string(options_.limit.count()) + " ms");
  }
  if (*outcome == kReady) return;
  throw Error(ErrorCode::kDisconnected, "rank " + *outcome + " has died while the group of " +
                                            std::to_string(options_.world_size) + " workers met");
}

}  // namespace gradwire
