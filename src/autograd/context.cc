#include "autograd/context.h"

#include <c10/core/GradMode.h>

namespace gradwire::autograd {

bool ContextState::AddPeer(WorkerId peer) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  peers_.insert(peer);
  return true;
}

bool ContextState::AddSend(MessageId message, SendPtr node) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  send_by_message_.emplace(message, node);
  contents_.sends.emplace(created_++, std::pair(message, std::move(node)));
  return true;
}

bool ContextState::AddRecv(MessageId message, RecvPtr node) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  contents_.recvs.emplace(created_++, std::pair(message, std::move(node)));
  return true;
}

SendPtr ContextState::FindSend(MessageId message) const {
  const std::lock_guard lock(mutex_);
  const auto it = send_by_message_.find(message);
  return it == send_by_message_.end() ? SendPtr() : it->second;
}

std::vector<std::pair<MessageId, SendPtr>> ContextState::sends() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<MessageId, SendPtr>> result;
  for (const auto& [order, entry] : contents_.sends) result.push_back(entry);
  return result;
}

std::vector<std::pair<MessageId, RecvPtr>> ContextState::recvs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<MessageId, RecvPtr>> result;
  for (const auto& [order, entry] : contents_.recvs) result.push_back(entry);
  return result;
}

std::set<WorkerId> ContextState::peers() const {
  const std::lock_guard lock(mutex_);
  return peers_;
}

void ContextState::Join(std::vector<LeafGradient> gradients) {
  const c10::AutoGradMode no_grad(false);
  struct Sum {
    LeafGradient* fresh;
    LeafGradient old;
  };
  std::vector<Sum> sums;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (LeafGradient& fresh : gradients) {
      auto [it, is_new] = contents_.gradients.try_emplace(fresh.leaf.unsafeGetTensorImpl(), fresh);
      if (is_new) continue;
      if (fresh.is_whole) {
        std::swap(it->second, fresh);  // the old one goes with `gradients`
      } else {
        sums.push_back({&fresh, it->second});
      }
    }
  }
  // Arithmetic without the lock: nobody else changes entries meanwhile.
  for (Sum& sum : sums) AddGradient(sum.old.leaf, sum.old.gradient, sum.fresh->gradient, 1);
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  for (Sum& sum : sums) {
    // In place as a rule; where it is another tensor, the old one goes with `sums`, after the lock.
    std::swap(contents_.gradients[sum.old.leaf.unsafeGetTensorImpl()].gradient, sum.old.gradient);
  }
}

std::vector<LeafGradient> ContextState::gradients() const {
  const std::lock_guard lock(mutex_);
  std::vector<LeafGradient> result;
  for (const auto& [leaf, entry] : contents_.gradients) result.push_back(entry);
  return result;
}

at::Tensor ContextState::gradient(const at::Tensor& leaf) const {
  const std::lock_guard lock(mutex_);
  const auto it = contents_.gradients.find(leaf.unsafeGetTensorImpl());
  return it == contents_.gradients.end() ? at::Tensor() : it->second.gradient;
}

void ContextState::SetGradient(const at::Tensor& leaf, const at::Tensor& gradient) {
  LeafGradient old;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto it = contents_.gradients.find(leaf.unsafeGetTensorImpl());
  if (it == contents_.gradients.end()) return;
  std::swap(old, it->second);
  if (gradient.defined()) {
    it->second = {leaf, gradient};
  } else {
    contents_.gradients.erase(it);
  }
}

void ContextState::Poison(Failure failure) {
  const std::lock_guard lock(mutex_);
  if (!poison_) poison_ = std::move(failure);
}

std::optional<Failure> ContextState::poison() const {
  const std::lock_guard lock(mutex_);
  return poison_;
}

bool ContextState::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::set<WorkerId> ContextState::Close(Contents& rest) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  std::swap(rest, contents_);
  send_by_message_.clear();
  return std::exchange(peers_, {});
}

}  // namespace gradwire::autograd
