// TestStore: a store in memory, for workers of one process. MortalStore: what one of them sees of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "gradwire/error.h"
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

// Until Die() another store: who has crashed writes nothing any more.
class MortalStore final : public Store {
 public:
  explicit MortalStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void Die() { dead_ = true; }
  void Set(const std::string& key, const std::string& value) override { Living().Set(key, value); }
  std::optional<std::string> Get(const std::string& key, std::chrono::milliseconds limit) override {
    return Living().Get(key, limit);
  }
  int64_t Add(const std::string& key, int64_t amount) override { return Living().Add(key, amount); }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    return Living().CompareSet(key, expected, desired);
  }
  std::string Host() const override { return store_->Host(); }

 private:
  Store& Living() {
    if (dead_) throw Error(ErrorCode::kUnreachable, "it has crashed");
    return *store_;
  }

  const std::shared_ptr<Store> store_;
  std::atomic<bool> dead_{false};
};

}  // namespace gradwire
