// Participant: one worker's part in one backward pass: marking, running, and its end by commit or abort.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "autograd/calls.h"
#include "autograd/context.h"
#include "autograd/current_context.h"
#include "autograd/pass.h"
#include "gradwire/unique_function.h"

namespace gradwire::autograd {

struct PassId {
  WorkerId starter;
  uint64_t number = 0;
  auto operator<=>(const PassId&) const = default;
};

// Thread-safe. Its steps, in order (docs/autograd.md, "A pass"):
//   BeginWalk, Walk      any number of times, until every mark of the pass is answered
//   WhenDone, Arrive     gradients come in and go on
//   Commit or Abort      once
class Participant : public std::enable_shared_from_this<Participant> {
 public:
  struct Setup {
    PassId id;
    std::shared_ptr<ContextState> context;
    bool retain_graph = false;
    bool is_starter = false;
    std::shared_ptr<Calls> calls;
    std::function<const CurrentContext&()> current;
    Describe describe;
  };
  static std::shared_ptr<Participant> Make(Setup setup);

  const PassId& id() const { return setup_.id; }
  const std::shared_ptr<ContextState>& context() const { return setup_.context; }

  // A mark of worker `marker` has come: an abort waits from here on until its Walk() has ended. May be called under a
  // role.
  void BeginWalk(int64_t marker);

  // Whether the end of this worker's part hung on `peer`, which is gone: as the starter, or as one that marked it and
  // may not have told the starter. Not once the part is done: then the starter knows of it.
  bool MayNotEndWithout(WorkerId peer) const;

  // Counts `entries` and what they reach, marks on other workers what receive nodes lead to, and answers when all of
  // that is answered (Dijkstra and Scholten): with the set of workers reached, this one included, or the first failure.
  // Once after each BeginWalk(); on a pool or user thread. A null entry is one that is not here, a failure.
  using Marked = std::function<void(std::optional<Failure>, const std::set<WorkerId>&)>;
  void Walk(std::vector<NodePtr> entries, Marked done);

  // `done` runs once: when all counted entries have arrived and everything they led to has been run and has been
  // received by its worker, or at the first failure.
  void WhenDone(UniqueFunction<void(const std::optional<Failure>&)> done);

  // Runs what `entry` leads to. On a pool or user thread, for as long as its nodes take.
  void Arrive(const NodePtr& entry, TensorList gradients);

  // Ends this worker's part with an error; the starter hears of it by WhenDone() and aborts the pass.
  void Fail(Failure failure);

  // Adds the gradients of the pass to the context. The failure when there is nothing to add. On a pool or user thread.
  std::optional<Failure> Commit();

  // No more nodes start; `done` runs when none runs here any more and all workers that were marked from here have
  // aborted too. At once when an abort is under way already. May be called under a role.
  void Abort(UniqueFunction<void()> done);

 private:
  enum class Phase { kOpen, kDone, kFailed, kCommitted, kAborted };
  using DoneCallbacks = std::vector<UniqueFunction<void(const std::optional<Failure>&)>>;
  struct Join;

  explicit Participant(Setup setup);

  // Receive nodes that the walk newly reached, by worker; those that lead back here are followed at once.
  std::map<WorkerId, std::vector<MessageId>> Count(std::vector<NodePtr> entries);
  void SendMarks(const std::map<WorkerId, std::vector<MessageId>>& marks, const std::shared_ptr<Join>& join);
  void Leave(const RecvBackward& node, TensorList gradients);
  void OnAcknowledged(const Outcome& outcome);
  // Something counted in `activity_` has ended: the abort or the end of the run may go on. Any thread but under a role.
  void EndActivity();
  void FinishRun();
  void AbortMarked();

  const Setup setup_;
  Pass pass_;

  mutable std::mutex mutex_;  // guards all below; a leaf
  Phase phase_ = Phase::kOpen;
  std::optional<Failure> failure_;
  std::unordered_map<const Node*, bool> entries_;  // counted ones: whether their gradients have come
  size_t missing_ = 0;                             // entries that have not been run to their end
  size_t unacknowledged_ = 0;                      // gradients sent, not yet received
  size_t activity_ = 0;                            // walks, runs and commits under way on threads of this worker
  // All walks come before the first arrival: the pass is not locked while it runs.
  size_t walks_ = 0;
  bool runs_ = false;
  bool finishing_ = false;
  std::set<WorkerId> marked_;
  std::set<int64_t> markers_;            // ranks
  std::vector<LeafGradient> gradients_;  // of the pass, until it is committed
  DoneCallbacks when_done_;
  UniqueFunction<void()> when_aborted_;
};

}  // namespace gradwire::autograd
