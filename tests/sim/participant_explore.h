// All interleavings of a backward pass over three workers A, B and C, on the real tables of passes: A1 to A3, C1.
//
// Around the tables stands a model of what Protocol does with them: calls in order, walks, nodes that run, additions. A
// step of the exploration is one delivery, the end of one piece of work on a worker, one thing that goes wrong, or one
// worker that notices a loss: what the other had sent and has not been delivered by then is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradwire::sim {

// One rule of PassRules switched off each (autograd/pass_table.h).
enum class PassMistake : uint8_t {
  kNone,
  kAnswerAtOnce,
  kNoReceipts,
  kCommitEarly,
  kAbortStops,
  kAbortAtOnce,
  kLeaveUnanswered,
  kOutliveTheStarter,
  kOutliveAMarker,
  kForgetWhy,
  kHalfCommitted,
  kCloseLeavesWaits,
};

// A starts the pass; which workers the gradients go to from there.
enum class PassGraph : uint8_t {
  kLine,     // A -> B -> C
  kChain,    // A -> B -> C -> A
  kDiamond,  // A -> B and C, B -> C, C -> A when it has both
  kMeeting,  // A -> B and C, each to the other and back to A
};

// How often things may go wrong in one run.
struct PassBounds {
  PassGraph graph = PassGraph::kChain;
  int deaths = 0;         // a worker is gone, with any suffix of what it sent to each
  int closes = 0;         // a worker ends while its program waits
  int breaks = 0;         // two living workers lose each other, and each notices when it does
  int refusals = 0;       // a call fails at its callee without being handled
  int node_failures = 0;  // a node throws
  int interrupts = 0;     // the thread of the backward leaves
  int releases = 0;       // a worker releases the context
  bool second_pass = false;  // B starts a pass of its own in the same context
};

struct PassReport {
  size_t states = 0;               // different ones visited, up to the broken guarantee if there is one
  std::string broken;              // empty: every guarantee held in every state
  std::vector<std::string> steps;  // that led to it
};

PassReport ExplorePasses(const PassBounds& bounds, PassMistake mistake = PassMistake::kNone);

}  // namespace gradwire::sim
