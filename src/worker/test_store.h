// TestStore: a store in memory, for workers of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "gradwire/store.h"

namespace gradwire {

class TestStore final : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> Get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) > 0; })) return std::nullopt;
    return values_[key];
  }
  int64_t Add(const std::string& key, int64_t amount) override {
    std::lock_guard lock(mutex_);
    return counters_[key] += amount;
  }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    if (value == expected) value = desired;
    changed_.notify_all();
    return value;
  }
  std::string Host() const override { return "127.0.0.1"; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
};

}  // namespace gradwire
