// WaitHook: a look at the outside world for threads that wait inside the library (Python's signals).
#pragma once

#include "gradwire/export.h"

namespace gradwire {

// While it lives, each wait of the thread that made it calls `hook` about every 100 ms. What the hook throws ends that
// wait; what was waited for goes on. Not on pool threads. Inner ones hide outer ones.
class GRADWIRE_API WaitHook {
 public:
  using Hook = void (*)();
  explicit WaitHook(Hook hook);
  ~WaitHook();
  WaitHook(const WaitHook&) = delete;

  static Hook current();  // of this thread, or nullptr

 private:
  const Hook outer_;
};

}  // namespace gradwire
