// Credit: how many requests one side of a session may have sent that the other has not begun to serve (C4).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/task.h"

namespace gradwire::rpc {

// Both sides count every request of the session; only calls of programs wait. Since each request is begun in the end,
// whatever its handler waits for (C3), no cycle of calls can block. Thread-safe.
class Credit {
 public:
  static constexpr uint64_t kWindow = 1024;

  // The sender's side.

  // Counts a request that waits for nobody.
  void Count();
  // Counts a request if it may go now.
  bool Take();
  // The same, but else keeps `send`, which is handed out when its turn comes, counted.
  bool TakeOrKeep(Task& send);
  // A counted one was not sent. What may go instead is returned.
  std::vector<Task> GiveBack();
  // The other side has begun `begun` requests in all. Throws Error(kInvalid) for more than were sent.
  std::vector<Task> Grant(uint64_t begun);
  // From now on all may go. Those that waited are returned.
  std::vector<Task> Close();

  // The receiver's side.

  // A request that has to wait for credit has come. Throws Error(kInvalid) when its sender cannot have had any: more
  // than a window of such requests would wait to be begun.
  void Arrive();
  // It has begun one more, `bounded` when it was one for Arrive(). What to tell the sender, when it is time to.
  std::optional<uint64_t> Begin(bool bounded);

 private:
  std::vector<Task> AdmitLocked();

  mutable std::mutex mutex_;
  uint64_t sent_ = 0;
  uint64_t granted_ = 0;  // of them, known to be begun
  bool closed_ = false;
  std::deque<Task> waiting_;

  std::atomic<uint64_t> begun_{0};  // of the other side's
  std::atomic<uint64_t> unbegun_{0};  // of the other side's, those for Arrive() only
};

}  // namespace gradwire::rpc
