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
#include "gradwire/function.h"

namespace gradwire::autograd {

// Thread-safe. Lives in a shared pointer: tasks and completions hold it.
class Protocol : public std::enable_shared_from_this<Protocol> {
 public:
  explicit Protocol(std::shared_ptr<AutogradInterceptor> interceptor) : interceptor_(std::move(interceptor)) {}

  void Register(Functions& functions);
  // Before the first call.
  void Attach(std::shared_ptr<Calls> calls);
  void set_describe(Describe describe);

  AutogradInterceptor& interceptor() { return *interceptor_; }
  const std::shared_ptr<AutogradInterceptor>& shared_interceptor() const { return interceptor_; }
  Calls& calls() { return *calls_; }

  // Throws Error; see gradwire/autograd.h.
  void Backward(ContextId context, const TensorList& roots, bool retain_graph);

  // A7. False when unknown. May be called under a role.
  bool Release(ContextId context);

  // A worker is lost or has left: ends the passes that it started or that came here through it, since nobody else may
  // know that they did; releases contexts that nobody else will. May be called under a role.
  void OnPeerEnded(WorkerId peer, const Failure& why);

  size_t passes() const;

 private:
  // The participant of the pass, made when there is none. Throws Error(kInvalid) when the context is unknown or another
  // pass runs in it.
  std::shared_ptr<Participant> Begin(ContextId context, const PassId& id, bool retain_graph);
  // What to say of a pass that is not here, or not any more.
  Failure NotHere(ContextId context, const PassId& id) const;
  std::shared_ptr<Participant> Find(ContextId context, const PassId& id) const;  // null when there is none
  void Forget(const std::shared_ptr<Participant>& participant);

  void OnMark(const std::shared_ptr<IncomingCall>& call);
  void OnGradients(const std::shared_ptr<IncomingCall>& call);
  void OnRun(const std::shared_ptr<IncomingCall>& call);
  void OnCommit(const std::shared_ptr<IncomingCall>& call);
  void OnAbort(const std::shared_ptr<IncomingCall>& call);
  void OnRelease(const std::shared_ptr<IncomingCall>& call);

  // The starter's steps (backward.cc). A failure means that the pass is to be aborted.
  std::optional<Failure> RunPass(const std::shared_ptr<Participant>& participant, const NodePtr& root,
                                 const TensorList& roots, std::set<WorkerId>& others);
  std::optional<Failure> CommitAll(const std::shared_ptr<Participant>& participant, const std::set<WorkerId>& others);
  void AbortAll(const std::shared_ptr<Participant>& participant, const std::set<WorkerId>& others);

  const std::shared_ptr<AutogradInterceptor> interceptor_;
  std::shared_ptr<Calls> calls_;  // constant once attached
  std::atomic<uint64_t> next_pass_{0};

  mutable std::mutex mutex_;  // guards all below; a leaf
  Describe describe_;
  std::map<ContextId, std::shared_ptr<Participant>> passes_;  // at most one in a context
  // Passes that the loss of a worker ended here, until the context's next one: what came of them, for those who ask.
  std::map<ContextId, std::pair<PassId, Failure>> lost_;
};

// The error of everything that names a context that is not here.
Failure UnknownContext(ContextId context, const std::string& worker);

}  // namespace gradwire::autograd
