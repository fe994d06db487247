// Messages with which the workers of a group agree on who is in it (docs/membership.md). They travel as arguments of an
// internal function, and are checked like all that a peer sends: Decode throws Error(kInvalid) for bad bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/worker_set.h"

namespace gradwire::wire {

// One round's number. Attempt 0 stands below all rounds of its epoch and has no proposer.
struct Ballot {
  uint64_t epoch = 0;
  uint64_t attempt = 0;
  WorkerId proposer;
  auto operator<=>(const Ballot&) const = default;
};

// From one view to the next.
struct Change {
  WorkerSet lost;
  WorkerSet joined;
  bool operator==(const Change&) const = default;
};

struct AcceptedChange {
  Ballot ballot;
  Change change;
  bool operator==(const AcceptedChange&) const = default;
};

// Newcomers, and the members that have the name or the rank which each of them wants.
using Newcomers = std::map<WorkerId, WorkerSet>;

// To whom it would be the coordinator: these are suspected, those want to be let in. Of a newcomer: itself, epoch 0.
struct GroupReport {
  uint64_t epoch = 0;
  WorkerSet about;
  Newcomers joins;
  bool operator==(const GroupReport&) const = default;
};

// A round begins. `members`: the view of the ballot's epoch. `wanted`: whom it is about.
struct GroupAsk {
  Ballot ballot;
  WorkerSet members;
  WorkerSet wanted;
  bool operator==(const GroupAsk&) const = default;
};

// The answer: what it has accepted before, whom of the wanted it reaches, who is proved to be gone.
struct GroupVote {
  Ballot ballot;
  std::optional<AcceptedChange> accepted;
  WorkerSet reached;
  WorkerSet gone;
  bool operator==(const GroupVote&) const = default;
};

// The answer to a ballot below the one that was promised.
struct GroupNack {
  Ballot promised;
  bool operator==(const GroupNack&) const = default;
};

struct GroupPropose {
  Ballot ballot;
  WorkerSet members;
  Change change;
  bool operator==(const GroupPropose&) const = default;
};

struct GroupAccept {
  Ballot ballot;
  bool operator==(const GroupAccept&) const = default;
};

struct GroupView {
  uint64_t epoch = 0;
  WorkerSet members;
  bool operator==(const GroupView&) const = default;
};

// The proposer has found too few: `voters` are all that it or they reach, `gone` who does not count.
struct GroupCut {
  Ballot ballot;
  WorkerSet voters;
  WorkerSet gone;
  bool operator==(const GroupCut&) const = default;
};

// To a newcomer: somebody who lives has its name or its rank.
struct GroupTaken {
  bool operator==(const GroupTaken&) const = default;
};

// The numbers of the alternatives are part of the format.
using GroupMessage = std::variant<GroupReport, GroupAsk, GroupVote, GroupNack, GroupPropose, GroupAccept, GroupView,
                                  GroupCut, GroupTaken>;

std::string Encode(const GroupMessage& message);
GroupMessage DecodeGroupMessage(std::string_view bytes);

// A sign of life, and the sender's epoch: whoever knows a newer view tells it.
struct GroupBeat {
  uint64_t epoch = 0;
  uint64_t number = 0;     // counts the beats of one sender to one worker
  bool is_answer = false;  // to the beat of that number
  bool operator==(const GroupBeat&) const = default;
};

// What one call of the internal function carries: a beat or a message, and why workers were declared lost, in words, of
// those whom the message has lost.
struct GroupLetter {
  std::variant<GroupBeat, GroupMessage> content;
  std::map<WorkerId, std::string> reasons;
  bool operator==(const GroupLetter&) const = default;
};
std::string Encode(const GroupLetter& letter);
GroupLetter DecodeGroupLetter(std::string_view bytes);

}  // namespace gradwire::wire
