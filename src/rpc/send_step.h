// SendStepLock: holds the worker-wide mutex under which ids are taken and messages are queued in one go (O5).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace gradwire::rpc {

class Session;

// What this thread flushes while one stands is written after its end: a socket is not written under a mutex that all
// calls with references need. One at a time on a thread.
class SendStepLock {
 public:
  explicit SendStepLock(std::mutex& mutex);
  ~SendStepLock();
  SendStepLock(const SendStepLock&) = delete;

  // Whether the flush of `session` is put off until the end of this thread's send step.
  static bool Defers(const std::shared_ptr<Session>& session);
  static bool on_this_thread();

 private:
  std::unique_lock<std::mutex> lock_;
  std::vector<std::shared_ptr<Session>> to_flush_;
};

}  // namespace gradwire::rpc
