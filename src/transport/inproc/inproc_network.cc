#include "transport/inproc/inproc_network.h"

#include <iterator>

#include "transport/inproc/inproc_end.h"

namespace gradwire::transport {

std::string InprocNetwork::State::Add(const std::shared_ptr<InprocListener>& listener) {
  std::lock_guard lock(mutex);
  std::string address = "inproc://" + std::to_string(++last_address);
  listeners.emplace(address, listener);
  return address;
}

std::shared_ptr<InprocListener> InprocNetwork::State::Find(const std::string& address) {
  std::lock_guard lock(mutex);
  auto it = listeners.find(address);
  return it == listeners.end() ? nullptr : it->second.lock();
}

void InprocNetwork::State::Remove(const std::string& address) {
  std::lock_guard lock(mutex);
  listeners.erase(address);
}

void InprocNetwork::State::AddEnds(const std::string& address, const std::vector<std::shared_ptr<InprocEnd>>& added) {
  std::lock_guard lock(mutex);
  for (auto it = ends.begin(); it != ends.end();) {
    it = it->second.expired() ? ends.erase(it) : std::next(it);
  }
  for (const auto& end : added) ends.emplace(address, end);
}

void InprocNetwork::Cut(const std::string& address) {
  std::vector<std::shared_ptr<InprocEnd>> ends;
  {
    std::lock_guard lock(state_->mutex);
    const auto [first, last] = state_->ends.equal_range(address);
    for (auto it = first; it != last; ++it) {
      if (auto end = it->second.lock()) ends.push_back(std::move(end));
    }
    state_->ends.erase(first, last);
  }
  for (const auto& end : ends) end->Cut();
}

}  // namespace gradwire::transport
