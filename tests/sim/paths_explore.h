// All runs of two real `Paths` against each other, over connections that break at any moment: O3, as far as it is
// theirs.
//
// Around them stands a model of what a session does with their actions: connections with frames under way, messages
// that are numbered, kept and sent again, pauses that are over at some moment. A step of the exploration is one event
// of one side. A break loses any suffix of what is under way in either direction, and each side notices it at any later
// moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::sim {

// One rule each that is switched off.
enum class PathsMistake : uint8_t {
  kNone,
  kNoTieBreak,              // at equal numbers the other's attempt is always taken
  kNoAttemptNumbers,        // an attempt is taken by who has none, or loses ties
  kPathNumberForgotten,     // the promise ends with the path
  kFailedAttemptForgotten,  // the promise of an attempt ends with it
  kNoFence,                 // another path is taken while the older one is still read
  kProvedBeforeFence,       // an own Proof is sent while it is
  kStaleRefusalEnds,        // a stale attempt ends the pair
  kNoRetryPause,            // a failed attempt is tried again before the other's can have come
};

struct PathsBounds {
  int messages = 2;        // of each side, queued from the start
  int breaks = 2;          // of connections, or of connects
  int strangers = 0;       // how often a connect reaches somebody else, who refuses it, lies about numbers, or closes
  bool ends = false;       // side 0 may end the pair, at any moment
  bool one_sided = false;  // side 0 has no address of side 1
  PathsMistake mistake = PathsMistake::kNone;
};

struct PathsReport {
  size_t states = 0;               // different ones visited, up to the broken guarantee if there is one
  std::string broken;              // empty: every guarantee held in every state
  std::vector<std::string> steps;  // that led to it
};

PathsReport ExplorePaths(const PathsBounds& bounds);

}  // namespace gradwire::sim
