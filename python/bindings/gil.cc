#include "gil.h"

#include <algorithm>
#include <atomic>

namespace gradwire::python {
namespace {

struct ThreadState {
  PyGILState_STATE before{};
  PyThreadState* state = nullptr;
};
thread_local ThreadState this_thread;

thread_local bool waits_are_forbidden = false;

using std::chrono::steady_clock;
std::atomic<int64_t> lock_waits{0}, lock_wait_ns{0};
std::atomic<bool> program_ends{false};

}  // namespace

bool InterpreterLives() { return Py_IsInitialized() && !_Py_IsFinalizing(); }

void NoteExit() { program_ends = true; }
bool ProgramEnds() { return program_ends; }

void EnterThread() {
  if (!InterpreterLives()) return;
  this_thread.before = PyGILState_Ensure();
  this_thread.state = PyEval_SaveThread();
}

void LeaveThread() {
  if (!this_thread.state || !InterpreterLives()) return;
  PyEval_RestoreThread(this_thread.state);
  this_thread.state = nullptr;
  PyGILState_Release(this_thread.before);
}

bool IsWorkerThread() { return this_thread.state != nullptr; }

CallLock::CallLock() : asked_(steady_clock::now()) {
  lock_wait_ns += std::chrono::nanoseconds(steady_clock::now() - asked_).count();
  ++lock_waits;
}

std::chrono::microseconds AverageLockWait() {
  const int64_t waits = std::max(lock_waits.load(), int64_t{1});
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::nanoseconds(lock_wait_ns / waits));
}

SharedObject::~SharedObject() {
  if (!InterpreterLives()) {
    object_.release();  // nobody frees it any more
    return;
  }
  const py::gil_scoped_acquire locked;
  object_ = py::object();
}

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
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw Error(ErrorCode::kCancelled, "the wait was interrupted by a signal");
}

}  // namespace gradwire::python
