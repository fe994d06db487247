// The interpreter lock at the edges where C++ threads meet Python.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <utility>

#include "gradwire/error.h"
#include "gradwire/wait_hook.h"
#include "process_end.h"
#include "python_surroundings.h"

namespace gradwire::python {

// First and last thing that each thread of a worker runs. Between the two the thread keeps one Python thread state: a
// Python error that is set in it must survive until C++ has looked at it. EnterThread() does not wait for the lock, so
// that a pool may grow while Python computes.
void EnterThread();
void LeaveThread() noexcept;
bool IsWorkerThread();  // whether this one is between the two

// The lock, taken and given back. A thread that asks for it when the interpreter has begun to end sleeps for ever.
PyGILState_STATE TakeLock() noexcept;
class Locked {
 public:
  Locked() noexcept : before_(TakeLock()) {}
  ~Locked() { PyGILState_Release(before_); }
  Locked(const Locked&) = delete;

 private:
  const PyGILState_STATE before_;
};

// Takes the lock for a call or its result, and adds to what AverageLockWait() tells.
class CallLock {
 public:
  CallLock();

 private:
  std::chrono::steady_clock::time_point asked_;
  Locked locked_;
};

// How long calls and results have waited for the lock so far, on average; 0 before the first.
std::chrono::microseconds AverageLockWait();

// A reference to a Python object that any thread may let go of, at any time.
class SharedObject {
 public:
  explicit SharedObject(py::object object) : object_(std::move(object)) {}
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;

  py::handle get() const { return object_; }  // use it with the lock

 private:
  py::object object_;
};

// Throws Error and leaves a Python exception set when a signal handler of Python has raised one (Ctrl-C).
void LookForSignals();

// This thread runs an event loop: it must not wait for other workers, as those would wait for its coroutines.
void ForbidWaits();
// Throws Error(kInvalid) on such a thread. For what is about to wait.
void CheckMayWait();
// For waits of which it is not known before whether they are any.
void LookForSignalsAndLoops();

// Runs `f` without the lock. Its calls belong to what the Python code here runs inside of. Its waits inside the library
// can be ended by signals of Python.
template <class F>
auto WithoutLock(F f, WaitHook::Hook look = LookForSignals) {
  try {
    const ContextVariableScope inside;
    const py::gil_scoped_release unlocked;
    const WaitHook hook(look);
    return f();
  } catch (const Error&) {
    if (PyErr_Occurred()) throw py::error_already_set();
    throw;
  }
}

}  // namespace gradwire::python
