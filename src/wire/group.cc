#include "wire/group.h"

#include <cstddef>
#include <type_traits>

#include "wire/cursor.h"

namespace gradwire::wire {
namespace {

constexpr size_t kMostReason = 1024;

// Appends and reads each kind of field once; the messages below only list theirs.

struct GroupWriter {
  std::string& out;

  void Pass(uint64_t number) { Append(out, number); }
  void Pass(WorkerId worker) { Append(out, worker.packed()); }
  void Pass(const WorkerSet& workers) {
    Append(out, static_cast<uint32_t>(workers.size()));
    for (const WorkerId& worker : workers) Pass(worker);
  }
  void Pass(const Ballot& ballot) { Pass(ballot.epoch), Pass(ballot.attempt), Pass(ballot.proposer); }
  void Pass(const Change& change) { Pass(change.lost), Pass(change.joined); }
  void Pass(const std::optional<AcceptedChange>& accepted) {
    Append(out, static_cast<uint8_t>(accepted.has_value()));
    if (accepted) Pass(accepted->ballot), Pass(accepted->change);
  }
  void Pass(const Newcomers& joins) {
    Append(out, static_cast<uint32_t>(joins.size()));
    for (const auto& [newcomer, taken] : joins) Pass(newcomer), Pass(taken);
  }
};

struct GroupReader {
  Cursor& in;

  void Pass(uint64_t& number) { number = in.Get<uint64_t>(); }
  void Pass(WorkerId& worker) { worker = WorkerId::FromPacked(in.Get<uint64_t>()); }
  void Pass(WorkerSet& workers) {
    WorkerId last;
    for (size_t i = 0, count = in.Count32(sizeof(uint64_t)); i < count; ++i) {
      WorkerId worker;
      Pass(worker);
      // Sorted, so that a large set costs no more to read than its bytes.
      if (i > 0 && worker <= last) ThrowInvalid("a set of workers is not in order");
      workers.insert(worker);
      last = worker;
    }
  }
  void Pass(Ballot& ballot) { Pass(ballot.epoch), Pass(ballot.attempt), Pass(ballot.proposer); }
  void Pass(Change& change) { Pass(change.lost), Pass(change.joined); }
  void Pass(std::optional<AcceptedChange>& accepted) {
    if (!in.Flag()) return;
    accepted.emplace();
    Pass(accepted->ballot), Pass(accepted->change);
  }
  void Pass(Newcomers& joins) {
    for (size_t i = 0, count = in.Count32(sizeof(uint64_t) + sizeof(uint32_t)); i < count; ++i) {
      WorkerId newcomer;
      Pass(newcomer);
      if (!joins.empty() && newcomer <= joins.rbegin()->first) ThrowInvalid("newcomers are not in order");
      Pass(joins[newcomer]);
    }
  }
};

template <class Fields, class Message>
void Visit(Fields fields, Message& m) {
  using Plain = std::remove_const_t<Message>;
  const auto all = [&](auto&... field) { (fields.Pass(field), ...); };
  if constexpr (std::is_same_v<Plain, GroupReport>) all(m.epoch, m.about, m.joins);
  if constexpr (std::is_same_v<Plain, GroupAsk>) all(m.ballot, m.members, m.wanted);
  if constexpr (std::is_same_v<Plain, GroupVote>) all(m.ballot, m.accepted, m.reached, m.gone);
  if constexpr (std::is_same_v<Plain, GroupNack>) all(m.promised);
  if constexpr (std::is_same_v<Plain, GroupPropose>) all(m.ballot, m.members, m.change);
  if constexpr (std::is_same_v<Plain, GroupAccept>) all(m.ballot);
  if constexpr (std::is_same_v<Plain, GroupView>) all(m.epoch, m.members);
  if constexpr (std::is_same_v<Plain, GroupCut>) all(m.ballot, m.voters, m.gone);
}

template <size_t kKind = 0>
GroupMessage Read(size_t kind, Cursor& in) {
  if constexpr (kKind < std::variant_size_v<GroupMessage>) {
    if (kind != kKind) return Read<kKind + 1>(kind, in);
    std::variant_alternative_t<kKind, GroupMessage> message;
    Visit(GroupReader{in}, message);
    return message;
  } else {
    ThrowInvalid("no message of a group has the kind " + std::to_string(kind));
  }
}

}  // namespace

std::string Encode(const GroupMessage& message) {
  std::string out;
  Append(out, static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& m) { Visit(GroupWriter{out}, m); }, message);
  return out;
}

GroupMessage DecodeGroupMessage(std::string_view bytes) {
  Cursor in(bytes);
  const size_t kind = in.Get<uint8_t>();
  GroupMessage message = Read(kind, in);
  in.ExpectEnd();
  return message;
}

std::string Encode(const GroupLetter& letter) {
  std::string out;
  Append(out, static_cast<uint32_t>(letter.reasons.size()));
  for (const auto& [worker, reason] : letter.reasons) {
    Append(out, worker.packed());
    AppendCounted16(out, std::string_view(reason).substr(0, kMostReason), "a reason");
  }
  const auto* beat = std::get_if<GroupBeat>(&letter.content);
  Append(out, static_cast<uint8_t>(beat != nullptr));
  if (beat) {
    Append(out, beat->epoch, beat->number, static_cast<uint8_t>(beat->is_answer));
  } else {
    out += Encode(std::get<GroupMessage>(letter.content));
  }
  return out;
}

GroupLetter DecodeGroupLetter(std::string_view bytes) {
  Cursor in(bytes);
  GroupLetter letter;
  for (size_t i = 0, count = in.Count32(sizeof(uint64_t) + sizeof(uint16_t)); i < count; ++i) {
    const WorkerId worker = WorkerId::FromPacked(in.Get<uint64_t>());
    letter.reasons[worker] = std::string(in.Counted16());
  }
  if (in.Flag()) {
    GroupBeat beat;
    beat.epoch = in.Get<uint64_t>();
    beat.number = in.Get<uint64_t>();
    beat.is_answer = in.Flag();
    in.ExpectEnd();
    letter.content = beat;
  } else {
    letter.content = DecodeGroupMessage(in.Bytes(in.remaining()));
  }
  return letter;
}

}  // namespace gradwire::wire
