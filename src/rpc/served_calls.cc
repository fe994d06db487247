#include "rpc/served_calls.h"

namespace gradwire::rpc {

void ServedCalls::Add(const std::shared_ptr<ServedCallImpl>& call, const Clock& clock) {
  const CallId id = call->request().call_id;
  if (id == 0) return;  // a notification has no caller that could cancel it
  std::lock_guard lock(mutex_);
  if (std::exchange(call->is_listed_, true)) return;
  call->since_ = clock.Now();
  calls_.emplace(Key{call->caller_id().packed(), id}, call);
}

void ServedCalls::Remove(ServedCallImpl& call) {
  std::lock_guard lock(mutex_);
  if (std::exchange(call.is_listed_, false)) calls_.erase(Key{call.caller_id().packed(), call.request().call_id});
}

std::shared_ptr<ServedCallImpl> ServedCalls::Find(WorkerId caller, CallId id) const {
  std::lock_guard lock(mutex_);
  const auto it = calls_.find({caller.packed(), id});
  return it == calls_.end() ? nullptr : it->second.lock();
}

std::vector<std::shared_ptr<ServedCallImpl>> ServedCalls::AllOf(WorkerId caller) const {
  std::vector<std::shared_ptr<ServedCallImpl>> found;
  std::lock_guard lock(mutex_);
  for (const auto& [key, weak] : calls_) {
    if (key.caller != caller.packed()) continue;
    if (auto call = weak.lock()) found.push_back(std::move(call));
  }
  return found;
}

std::vector<std::shared_ptr<ServedCallImpl>> ServedCalls::All() const {
  std::vector<std::shared_ptr<ServedCallImpl>> all;
  std::lock_guard lock(mutex_);
  for (const auto& [key, weak] : calls_) {
    if (auto call = weak.lock()) all.push_back(std::move(call));
  }
  return all;
}

size_t ServedCalls::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace gradwire::rpc
