#include "transport/inproc/inproc_network.h"

#include "transport/inproc/inproc_end.h"
#include "transport/inproc/inproc_line.h"
#include "transport/inproc/inproc_timing.h"

namespace gradwire::transport {

InprocNetwork::InprocNetwork() : InprocNetwork(Options{}) {}

InprocNetwork::InprocNetwork(const Options& options) : state_(std::make_shared<State>()) {
  if (options.clock) {
    state_->timing = std::make_shared<InprocTiming>(options.clock, options.least, options.most, options.seed);
  }
}

std::string InprocNetwork::State::Add(const std::shared_ptr<InprocListener>& listener) {
  std::lock_guard lock(mutex);
  std::string address = "inproc://" + std::to_string(++last_address);
  listeners.emplace(address, listener);
  return address;
}

void InprocNetwork::State::Remove(const std::string& address) {
  std::lock_guard lock(mutex);
  listeners.erase(address);
}

std::shared_ptr<InprocListener> InprocNetwork::State::Find(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex);
  if (IsKilledLocked(from, to)) return nullptr;
  auto it = listeners.find(to);
  return it == listeners.end() ? nullptr : it->second.lock();
}

bool InprocNetwork::State::IsKilledLocked(const std::string& from, const std::string& to) const {
  return from != to && (killed.contains(from) || killed.contains(to));
}

bool InprocNetwork::State::AreParted(const std::string& one, const std::string& other) {
  std::lock_guard lock(mutex);
  return ArePartedLocked(one, other);
}

bool InprocNetwork::State::ArePartedLocked(const std::string& one, const std::string& other) const {
  return !parted.empty() && parted.contains({one, other});
}

void InprocNetwork::State::AddConnection(const std::string& from, const std::string& to, const InprocEnd& near,
                                         const InprocEnd& far) {
  std::lock_guard lock(mutex);
  std::erase_if(connections, [](const Connected& each) { return each.expired(); });
  connections.push_back({.from = from, .to = to, .forth = near.out(), .back = far.out()});
  if (IsKilledLocked(from, to)) {
    near.out()->Cut({});
    far.out()->Cut({});
  } else if (ArePartedLocked(from, to)) {
    near.out()->Hold(true);
    far.out()->Hold(true);
  }
}

std::vector<std::shared_ptr<InprocLine>> InprocNetwork::State::Lines(
    const std::function<bool(const Connected&)>& chosen) {
  std::vector<std::shared_ptr<InprocLine>> lines;
  std::lock_guard lock(mutex);
  for (const Connected& each : connections) {
    if (!chosen(each)) continue;
    for (const auto& weak : {each.forth, each.back}) {
      if (auto line = weak.lock()) lines.push_back(std::move(line));
    }
  }
  return lines;
}

void InprocNetwork::Cut(const std::string& address, const Survivors& survivors) {
  const auto of_address = [&](const Connected& each) { return (each.from == address) != (each.to == address); };
  for (const auto& line : state_->Lines(of_address)) line->Cut(survivors);
}

void InprocNetwork::Cut(const std::string& one, const std::string& other, const Survivors& survivors) {
  const auto between = [&](const Connected& each) {
    return (each.from == one && each.to == other) || (each.from == other && each.to == one);
  };
  for (const auto& line : state_->Lines(between)) line->Cut(survivors);
}

void InprocNetwork::Kill(const std::string& address, const Survivors& survivors) {
  {
    std::lock_guard lock(state_->mutex);
    state_->killed.insert(address);
  }
  Cut(address, survivors);
}

void InprocNetwork::Part(const std::vector<std::string>& some, const std::vector<std::string>& others) {
  {
    std::lock_guard lock(state_->mutex);
    for (const std::string& one : some) {
      for (const std::string& other : others) {
        state_->parted.emplace(one, other);
        state_->parted.emplace(other, one);
      }
    }
  }
  const auto parted = [this](const Connected& each) { return state_->ArePartedLocked(each.from, each.to); };
  for (const auto& line : state_->Lines(parted)) line->Hold(true);
}

void InprocNetwork::Heal() {
  const auto parted = [this](const Connected& each) { return state_->ArePartedLocked(each.from, each.to); };
  const auto lines = state_->Lines(parted);
  {
    std::lock_guard lock(state_->mutex);
    state_->parted.clear();
  }
  for (const auto& line : lines) line->Hold(false);
}

}  // namespace gradwire::transport
