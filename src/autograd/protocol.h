// Protocol: the control messages of distributed autograd on one worker, and the starting of passes.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "autograd/autograd_interceptor.h"
#include "autograd/calls.h"
#include "autograd/participant.h"
#include "autograd/pass_table.h"
#include "base/event.h"
#include "gradwire/function.h"

namespace gradwire::autograd {

// Thread-safe. Lives in a shared pointer: tasks and completions hold it.
//
// Each event goes through the table of passes (Step). The actions that it gives are carried out in the order of the
// events, by one thread at a time: a mark is sent before the abort that follows it. None of them waits.
class Protocol : public std::enable_shared_from_this<Protocol> {
 public:
  explicit Protocol(std::shared_ptr<AutogradInterceptor> interceptor)
      : interceptor_(std::move(interceptor)), table_(interceptor_->self().id) {}

  void Register(Functions& functions);
  // Before the first call.
  void Attach(std::shared_ptr<Calls> calls);
  void set_describe(Describe describe);
  void set_find_reduced(FindReduced find);

  AutogradInterceptor& interceptor() { return *interceptor_; }
  const std::shared_ptr<AutogradInterceptor>& shared_interceptor() const { return interceptor_; }
  Calls& calls() { return *calls_; }

  // Throws Error; see gradwire/autograd.h.
  void Backward(ContextId context, const TensorList& roots, bool retain_graph);

  // A7. False when unknown. May be called under a role.
  bool Release(ContextId context);

  // A worker is lost or has left: ends the passes that cannot end without it. May be called under a role.
  void OnPeerEnded(WorkerId peer, const Failure& why);
  // Then, and all that it sent has been handled: releases contexts that it made, and has others that its calls brought
  // here released by their makers. May be called under a role.
  void OnPeerDrained(WorkerId peer);

  // This worker stops (C1): every backward ends with `why`, and so does each later one. Any thread.
  void Close(const Failure& why);

  size_t passes() const;

 private:
  using Actions = PassTable::Actions;
  using ParticipantPtr = std::shared_ptr<Participant>;
  // The thread of a backward, which waits.
  struct Waiting {
    Event fed;  // or ended already
    Event ended;
    FailurePtr failure;  // constant once `ended` is set
  };

  // Runs an event of the table under its mutex, then carries out what it says. `event` returns Actions.
  template <class TableEvent>
  void Step(TableEvent event);
  void CarryOut();  // all actions that are queued, unless another thread is at it
  void Carry(const Ask& ask);
  void Carry(const Answer& answer);
  void Carry(const Feed& feed);
  void Carry(const End& end);
  void Carry(const Stop& stop);
  void Carry(const Poison& poison);
  void Carry(const Forget& forget);
  void OnAnswer(const Ask& ask, Outcome outcome);

  // The starter's (backward.cc).
  void RunBackward(const ParticipantPtr& participant, Waiting& waiting, const TensorList& roots);
  ParticipantPtr MakeParticipant(const PassKey& pass, std::shared_ptr<ContextState> context, bool retain_graph,
                                 SendPtr root);

  ParticipantPtr Find(const PassKey& pass) const;  // null when there is none
  FailurePtr FailureHere(Failure failure) const;   // of a node or a hook of this worker
  Asker NewAsker(const std::shared_ptr<IncomingCall>& call);

  // Things that the table leaves to this worker's threads. On a pool or user thread.
  void WalkFrom(const ParticipantPtr& participant, Asker walk, std::vector<Marking> entries);
  void Arrive(const ParticipantPtr& participant, MessageId message, TensorList gradients);
  void AddUpIfAllHasRun(const ParticipantPtr& participant);
  void Leave(const PassKey& pass, const RecvBackward& node, TensorList gradients);

  void OnMark(const std::shared_ptr<IncomingCall>& call);
  void OnGradients(const std::shared_ptr<IncomingCall>& call);
  void OnRun(const std::shared_ptr<IncomingCall>& call);
  void OnCommit(const std::shared_ptr<IncomingCall>& call);
  void OnAbort(const std::shared_ptr<IncomingCall>& call);
  void OnRelease(const std::shared_ptr<IncomingCall>& call);
  void OnAdopt(const std::shared_ptr<IncomingCall>& call);

  const std::shared_ptr<AutogradInterceptor> interceptor_;
  std::shared_ptr<Calls> calls_;  // constant once attached
  std::atomic<uint64_t> next_pass_{0};

  mutable std::mutex mutex_;  // guards all below; a leaf
  Describe describe_;
  FindReduced find_reduced_;
  PassTable table_;
  Actions queued_;
  bool is_carrying_ = false;
  std::map<PassKey, ParticipantPtr> participants_;  // of the passes of the table
  std::map<PassKey, std::shared_ptr<Waiting>> waiting_;
  Asker last_asker_ = kNobody;
  std::map<Asker, std::shared_ptr<IncomingCall>> askers_;
};

// The error of everything that names a context that is not here.
Failure UnknownContext(ContextId context, const std::string& worker);

template <class TableEvent>
void Protocol::Step(TableEvent event) {
  {
    const std::lock_guard lock(mutex_);
    Actions actions = event();
    queued_.insert(queued_.end(), std::make_move_iterator(actions.begin()), std::make_move_iterator(actions.end()));
  }
  CarryOut();
}

}  // namespace gradwire::autograd
