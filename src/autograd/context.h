// ContextState: what one worker knows of one distributed autograd context.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/nodes.h"
#include "autograd/pass.h"
#include "base/ids.h"
#include "gradwire/error.h"

namespace gradwire::autograd {

// Thread-safe. A closed context (released, A7) records nothing and is empty; whoever still holds it notices nothing
// else.
class ContextState {
 public:
  explicit ContextState(ContextId id) : id_(id) {}
  ContextState(const ContextState&) = delete;

  ContextId id() const { return id_; }

  // False when closed: then nothing was recorded.
  bool AddPeer(WorkerId peer);
  bool AddSend(MessageId message, SendPtr node);
  bool AddRecv(MessageId message, RecvPtr node);

  SendPtr FindSend(MessageId message) const;                 // null when there is none
  std::vector<std::pair<MessageId, SendPtr>> sends() const;  // in the order of their creation
  std::vector<std::pair<MessageId, RecvPtr>> recvs() const;
  std::set<WorkerId> peers() const;  // whom calls with this context went to

  // Adds a pass's gradients to what is there. One caller at a time; on a pool thread or a user's.
  void Join(std::vector<LeafGradient> gradients);
  std::vector<LeafGradient> gradients() const;
  at::Tensor gradient(const at::Tensor& leaf) const;  // undefined when there is none
  // Of a leaf that has one; an undefined one takes it out.
  void SetGradient(const at::Tensor& leaf, const at::Tensor& gradient);

  // A pass lost a worker: part of the graph is gone, so later passes fail with this at once (A3).
  void Poison(Failure failure);
  std::optional<Failure> poison() const;

  bool closed() const;
  // Closes it; whom to tell. Its nodes and tensors go to `rest`, which must not be destroyed under a lock or a role.
  struct Contents {
    std::map<uint64_t, std::pair<MessageId, SendPtr>> sends;
    std::map<uint64_t, std::pair<MessageId, RecvPtr>> recvs;
    std::unordered_map<const c10::TensorImpl*, LeafGradient> gradients;
  };
  std::set<WorkerId> Close(Contents& rest);

 private:
  const ContextId id_;
  mutable std::mutex mutex_;  // guards all below; a leaf
  bool closed_ = false;
  uint64_t created_ = 0;
  Contents contents_;  // nodes by order of creation
  std::unordered_map<MessageId, SendPtr> send_by_message_;
  std::set<WorkerId> peers_;
  std::optional<Failure> poison_;
};

}  // namespace gradwire::autograd
