// BorrowedRead: what a thread must put aside while it reads a connection in another thread's stead.
#pragma once

#include <ATen/ThreadLocalState.h>

namespace gradwire::rpc {

// While one stands, torch's thread-local settings (inference mode, dispatch modes, ...) are those of a new thread: what
// arrives is none of this thread's. No function is run here either, not even one that may run under the read role: a
// program's own thread-local state is not put aside.
class BorrowedRead {
 public:
  BorrowedRead();
  ~BorrowedRead();
  BorrowedRead(const BorrowedRead&) = delete;

  static bool on_this_thread();

 private:
  const at::ThreadLocalStateGuard plain_;
};

}  // namespace gradwire::rpc
