// OfProcess: what belongs to the worker of one process. A forked child has copies of it, but neither the worker's
// threads nor a right to its connections, which the parent goes on using.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "gradwire/error.h"

namespace gradwire::python {

class OfProcess {
 public:
  static void NoteFork() { ++forks; }

  bool is_inherited() const { return made_after_ != forks.load(std::memory_order_relaxed); }

  // Throws Error in a forked child.
  void Check() const {
    if (!is_inherited()) return;
    throw Error(ErrorCode::kInvalid,
                "this was made before the process was forked, and belongs to the worker of the parent: the child must "
                "call init_rpc() and be given references of its own");
  }

 private:
  static inline std::atomic<int> forks{0};
  int made_after_ = forks.load(std::memory_order_relaxed);
};

// A value of such a kind. In a forked child it is never destroyed: its end would send messages.
template <class T>
class OwnOfProcess {
 public:
  OwnOfProcess(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  OwnOfProcess(OwnOfProcess&&) noexcept = default;
  OwnOfProcess(const OwnOfProcess&) = default;
  ~OwnOfProcess() {
    if (process_.is_inherited()) static_cast<void>(new T(std::move(value_)));
  }

  bool is_inherited() const { return process_.is_inherited(); }
  void Check() const { process_.Check(); }
  // Throws Error in a forked child.
  const T& get() const {
    process_.Check();
    return value_;
  }
  const T& get_anyway() const { return value_; }  // to look at

 private:
  OfProcess process_;
  T value_;
};

}  // namespace gradwire::python
