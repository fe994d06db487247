#include "gil.h"

#include <algorithm>
#include <atomic>

#include "release.h"

namespace gradwire::python {
namespace {

thread_local PyThreadState* this_thread = nullptr;

thread_local bool waits_are_forbidden = false;

using std::chrono::steady_clock;
std::atomic<int64_t> lock_waits{0}, lock_wait_ns{0};

}  // namespace

void EnterThread() {
  if (InterpreterLives()) this_thread = PyThreadState_New(PyInterpreterState_Main());
}

void LeaveThread() noexcept {
  if (!this_thread || !InterpreterLives()) return;
  PyEval_RestoreThread(this_thread);
  PyThreadState_Clear(this_thread);
  PyThreadState_DeleteCurrent();
  this_thread = nullptr;
}

bool IsWorkerThread() { return this_thread != nullptr; }

// The interpreter unwinds a thread that asks too late. It gets no further than here (process_end.h).
PyGILState_STATE TakeLock() noexcept {
  const PyGILState_STATE before = PyGILState_Ensure();
  asm volatile("" ::: "memory");  // no tail call: this frame is there while the lock is waited for
  return before;
}

CallLock::CallLock() : asked_(steady_clock::now()) {
  lock_wait_ns += std::chrono::nanoseconds(steady_clock::now() - asked_).count();
  ++lock_waits;
}

std::chrono::microseconds AverageLockWait() {
  const int64_t waits = std::max(lock_waits.load(), int64_t{1});
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::nanoseconds(lock_wait_ns / waits));
}

SharedObject::~SharedObject() { Release(object_.release().ptr()); }

void ForbidWaits() { waits_are_forbidden = true; }

void CheckMayWait() {
  if (!waits_are_forbidden) return;
  throw Error(
      ErrorCode::kInvalid,
      "a coroutine that others have called must not block: all coroutines of this worker would stand still, and "
      "what it waits for may be one of them. Await rpc_async() or its future instead, or asyncio.to_thread()");
}

void LookForSignalsAndLoops() {
  CheckMayWait();
  LookForSignals();
}

void LookForSignals() {
  if (!InterpreterLives()) return;
  const Locked locked;
  if (PyErr_CheckSignals() != 0) throw Error(ErrorCode::kCancelled, "the wait was interrupted by a signal");
}

}  // namespace gradwire::python
