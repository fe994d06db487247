#include "worker/rendezvous.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "gradwire/error.h"
#include "gradwire/value.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Record = std::tuple<int64_t, std::string, uint32_t, uint32_t, std::vector<std::string>, std::string>;
constexpr int64_t kRecordVersion = 1;
constexpr const char* kReady = "ready";
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

Rendezvous::Rendezvous(Store& store, uint32_t rank, uint32_t world_size, milliseconds limit)
    : store_(store), rank_(rank), world_size_(world_size), limit_(limit), begin_(steady_clock::now()) {
  // A store may outlive a group: each start of a rank on it is a new generation (M4).
  const int64_t generation = store_.Add("gradwire/starts/" + std::to_string(rank_), 1);
  prefix_ = "gradwire/" + std::to_string(generation) + "/";
}

milliseconds Rendezvous::Left() const {
  if (limit_.count() == 0) return std::chrono::hours(24 * 365);
  const auto passed = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin_);
  return std::max(milliseconds(1), limit_ - passed);
}

std::string Rendezvous::JobKey() { return store_.CompareSet(Key("job_key"), "", RandomJobKey()); }

void Rendezvous::ThrowMissing(const std::vector<uint32_t>& missing) const {
  std::string ranks;
  for (size_t i = 0; i < missing.size() && i < 20; ++i) ranks += (i ? ", " : "") + std::to_string(missing[i]);
  if (missing.size() > 20) ranks += ", ...";
  throw Error(ErrorCode::kTimedOut, "rank " + std::to_string(rank_) + " waited " + std::to_string(limit_.count()) +
                                        " ms for the group of " + std::to_string(world_size_) +
                                        " workers; missing: rank " + ranks);
}

std::vector<rpc::Member> Rendezvous::Exchange(const rpc::Member& self) {
  store_.Set(Key("worker/" + std::to_string(rank_)), EncodeMember(self));
  std::vector<rpc::Member> members;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    const auto record = store_.Get(Key("worker/" + std::to_string(rank)), Left());
    if (record) {
      members.push_back(DecodeRanked(*record, rank));
      continue;
    }
    std::vector<uint32_t> missing{rank};
    for (uint32_t other = rank + 1; other < world_size_; ++other) {
      if (!store_.Get(Key("worker/" + std::to_string(other)), milliseconds(20))) missing.push_back(other);
    }
    ThrowMissing(missing);
  }
  std::map<std::string, uint32_t> names;
  for (const rpc::Member& member : members) {
    const auto [first, added] = names.emplace(member.peer.name, member.peer.id.rank);
    if (!added) {
      throw Error(ErrorCode::kInvalid, "the worker name '" + member.peer.name + "' is not unique: ranks " +
                                           std::to_string(first->second) + " and " +
                                           std::to_string(member.peer.id.rank) + " have it");
    }
  }
  return members;
}

// Each looks after the next rank meanwhile, and tells all what it finds. A rank that starts again belongs to another
// generation, so nobody waits for it.
void Rendezvous::AwaitAllReady(const std::function<bool(uint32_t rank)>& is_gone) {
  const std::string key = Key("all_ready");
  if (store_.Add(Key("ready"), 1) == static_cast<int64_t>(world_size_)) store_.CompareSet(key, "", kReady);
  const uint32_t next = (rank_ + 1) % world_size_;
  const steady_clock::time_point end = steady_clock::now() + Left();
  std::optional<std::string> outcome;
  do {
    outcome = store_.Get(key, std::min(Left(), kLook));
    if (!outcome && next != rank_ && is_gone(next)) outcome = store_.CompareSet(key, "", std::to_string(next));
  } while (!outcome && steady_clock::now() < end);
  if (!outcome) {
    throw Error(ErrorCode::kTimedOut, "all workers published their records, but not all have read them in " +
                                          std::to_string(limit_.count()) + " ms");
  }
  if (*outcome == kReady) return;
  throw Error(ErrorCode::kDisconnected, "rank " + *outcome + " has died while the group of " +
                                            std::to_string(world_size_) + " workers met");
}

}  // namespace gradwire
