// All interleavings of the RRef protocol between an owner O and users U, V, W, on the real tables: R1 and R2.
//
// Around the tables stands a model of what the layer above does with them: ordered channels, send steps, header steps.
// A step of the exploration is one delivery, or one thing that a program does with a live handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::sim {

// One planted change of the protocol each. The first two and the last one are in the model of the sender and the
// receiver, the others in the owner's table, built with a rule switched off (rref::OwnerRules).
enum class Mistake : uint8_t {
  kNone,
  kDropBeforeAdd,       // a user that shares and drops queues the drop first (against rule 4)
  kLateHold,            // a hold is taken some time after the header step (against rule 2)
  kNoTombstone,         // a drop that comes before its add is forgotten (against rule 6)
  kTombstoneAfterFree,  // a drop of what is gone is remembered (against rule 7)
  kFetchBeforeCreate,   // "not yet" is taken for "no longer" (against rule 7)
  kFetchKeepsNothing,   // a value may be freed under an unanswered fetch
  kConfirmAtOnce,       // a confirm does not wait for the fork (against rule 4)

  // against rule 8
  kForksOfTheLostStay,    // forks of a lost holder count on
  kNoDoubt,               // what a lost worker held may be freed before the others have answered
  kNoLateDoubt,           // and what is shared with it after its loss
  kForksForTheLost,       // such a share counts
  kTombstonesForTheLost,  // drops of forks whose add was lost are remembered
  kDropsMissAnswers,      // a drop that overtakes the answer which names its fork is forgotten
  kNoDoubtBySilence,      // a worker that was lost before it answered is not asked about itself
  kFirstAnswerEnds,       // one answer ends the round
  kFirstRoundEnds,        // one round ends the doubts about all the lost
  kAsksAboutTheLast,      // the others are asked about the one that was lost last only
  kAnswersOnlyAdd,        // forks stay that never reached their holder
  kNoFence,               // a worker answers before it has lost the one that is asked about
};

// U creates the first value at the start.
enum class SecondValue : uint8_t {
  kNone,
  kOfSameCreator,  // U creates another at any time
  kOfOwner,        // a value of O's own program, first shared at any time
};

// How often things may happen in one run, all users and values together.
struct ExploreBounds {
  SecondValue second = SecondValue::kNone;
  int shares = 3;         // a message that carries a reference, between any two
  int fetches = 0;        // by a user with a live handle, or by O through a handle of its own
  int confirms = 0;       // by a user with a live handle
  int strays = 0;         // a user sends a drop twice, which a right one never does: it must cost nothing
  bool failures = false;  // a creation may end with a failure
  int deaths = 0;         // of users, with any suffix of what they sent to each lost
  int outcasts = 0;       // users that are declared lost while they live and go on
  bool late = false;      // the owner asks about the lost some time after it has seen that it must, and looks at an
                          // answer some time after it has come

  bool operator==(const ExploreBounds&) const = default;
};

struct ExploreReport {
  size_t states = 0;               // different ones visited, up to the broken guarantee if there is one
  std::string broken;              // empty: every guarantee held in every state
  std::vector<std::string> steps;  // that led to it
};

ExploreReport Explore(const ExploreBounds& bounds, Mistake mistake = Mistake::kNone);

}  // namespace gradwire::sim
