// Faults: failures and delays put into a worker's calls on purpose, to test what programs do about them.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/error.h"
#include "gradwire/export.h"

namespace gradwire {

// What befalls the calls of some functions.
struct Fault {
  std::string function;          // a name, or the beginning of names when it ends in "*" ("aten.*")
  std::optional<bool> remote{};  // only calls that keep their result there (`remote`), only others; both when empty
  int failures = 0;              // of this worker's calls, so many fail before anything of them is sent
  std::chrono::milliseconds delay{0};  // before this worker begins to serve such a call
};

// What tests give to WorkerOptions::faults. Thread-safe. Of several entries that match, each acts.
//
// A failed call leaves nothing behind (O5): no id is taken and the callee learns nothing. A notification, which has no
// caller to tell, is sent again until it goes out, as its session would do (O3). A delay comes between header step and
// handler: order, ids and counts are those of any other call; notifications are not delayed.
class GRADWIRE_API Faults {
 public:
  explicit Faults(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // Whether this call fails; counts it. Empty for one that goes out.
  std::optional<Failure> FailSend(const std::string& function, bool remote);
  // How long to wait before the handler starts.
  std::chrono::milliseconds DelayOf(const std::string& function, bool remote) const;

 private:
  std::mutex mutex_;
  std::vector<Fault> faults_;  // `failures` counts down under mutex_, the rest is constant
};

}  // namespace gradwire
