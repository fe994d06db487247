// All runs of two sessions against each other, on the real Outbox, Inbox and Paths, over connections that break at any
// moment: O3.
//
// Around them stands a model of what Session does between them, and of connections with frames under way. A step of
// the exploration is one event of one side: a frame is handed out or read, memory is there, a connection is made or
// found closed. A break loses any suffix of what is under way in either direction, and each side notices it later.
//
// States are counted that go on differently. Three things are left out for that unless `full`. A break loses all that
// is under way but a Proof: what one would read after it can as well be read before. Acknowledgements count only when
// they free the last message. What the next resume overwrites does not count while there is no path.
//
// Which connection of two is taken is explored more widely in paths_explore.h, with the rules of Paths switched off.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::sim {

// One rule each that is switched off: in the tables themselves, or in the model of the session.
enum class SessionMistake : uint8_t {
  kNone,
  kFreedAtWrite,            // a message is freed once it was handed out
  kBulkFreedWithHeader,     // its bulk is, once it was acknowledged
  kResumeFromSent,          // a new path goes on from what was sent
  kResumeFromAcked,         // or from what was acknowledged
  kParkedOverResume,        // what had no memory on the old path is not sent on the new one
  kAnswersOverResume,       // answers of the old path are given on the new one
  kNowForgotten,            // a side that was told to wait is not told when there is memory
  kNowBeforeWelcome,        // nor one that was told so by a resume
  kLeaverCountsNothing,     // a side that leaves takes no messages
  kLeaverParks,             // or waits for memory
  kAckBeforeStep,           // a message is acknowledged before its header step
  kNoFence,                 // frames of an older path are read beside those of a newer one
  kNoFenceAndDuplicates,    // and messages that were taken before are taken again
  kNoFenceAndWrittenTwice,  // or pieces
  kGoneAtWrite,             // a leaver is gone once all was handed out
  kLeaveOvertakes,          // a side has been left before all bytes of the leaver are here
};

struct SessionBounds {
  std::array<int, 2> messages = {3, 3};
  std::array<int, 2> bulk = {2, 0};  // which message of a side has bulk; 0: none
  int pieces = 2;                    // of that bulk
  int breaks = 2;
  std::array<bool, 2> leaves{};  // these sides leave, at any moment
  bool forgets = false;          // memory may also not be had
  bool slow = false;             // a piece is read, and an old connection closes, in a step of its own
  bool full = false;
  bool compares = false;  // fills SessionReport::unbroken
  SessionMistake mistake = SessionMistake::kNone;
};

struct SessionReport {
  size_t states = 0;               // different ones visited, up to the broken guarantee if there is one
  std::string broken;              // empty: every guarantee held in every state
  std::vector<std::string> steps;  // that led to it
  // Of the states in which no line is broken, whether `full` or not: they must be the same.
  std::array<uint64_t, 2> unbroken{};
};

SessionReport ExploreSession(const SessionBounds& bounds);

}  // namespace gradwire::sim
