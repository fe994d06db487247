// SimStore: what one simulated worker sees of the store that all share. Its waits are those of the simulation.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/executor.h"
#include "gradwire/store.h"

namespace gradwire::sim {

class SimStore final : public Store {
 public:
  struct Shared {
    std::map<std::string, std::string> values;
    std::map<std::string, int64_t> counters;
    std::list<std::weak_ptr<Event>> waiting;
  };
  SimStore(std::shared_ptr<Shared> shared, std::shared_ptr<Executor> executor)
      : shared_(std::move(shared)), executor_(std::move(executor)) {}

  void Set(const std::string& key, const std::string& value) override {
    shared_->values[key] = value;
    for (const auto& waiting : std::exchange(shared_->waiting, {})) {
      if (const auto event = waiting.lock()) event->Set();
    }
  }
  std::optional<std::string> Get(const std::string& key, std::chrono::milliseconds limit) override {
    for (;;) {
      if (const auto at = shared_->values.find(key); at != shared_->values.end()) return at->second;
      const auto changed = std::make_shared<Event>();
      shared_->waiting.push_back(changed);
      if (!executor_->Await(*changed, limit)) return std::nullopt;
    }
  }
  int64_t Add(const std::string& key, int64_t amount) override { return shared_->counters[key] += amount; }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    const auto at = shared_->values.find(key);
    if ((at == shared_->values.end() ? "" : at->second) == expected) Set(key, desired);
    return shared_->values[key];
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Executor> executor_;
};

}  // namespace gradwire::sim
