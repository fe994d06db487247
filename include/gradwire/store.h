// Store: the key-value store through which workers find each other. An adapter over any c10d store comes with the
// library; simulation and tests pass their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gradwire {

// All calls are thread-safe and may block up to their limit. Error(kUnreachable): nobody serves the store.
class Store {
 public:
  virtual ~Store() = default;

  virtual void Set(const std::string& key, const std::string& value) = 0;

  // Waits until the key is there; nothing when `limit` has passed first.
  virtual std::optional<std::string> Get(const std::string& key, std::chrono::milliseconds limit) = 0;

  // Adds to a counter that starts at 0; the new value.
  virtual int64_t Add(const std::string& key, int64_t amount) = 0;

  // Sets `desired` when the value equals `expected` ("" for an absent key); the value that stands there afterwards.
  virtual std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) = 0;

  // The machine that serves it, by which the workers can find the interfaces that lead to each other; "": not one.
  virtual std::string Host() const { return ""; }
};

}  // namespace gradwire
