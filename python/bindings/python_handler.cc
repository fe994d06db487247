#include "python_handler.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "call_encoder.h"
#include "local_value.h"
#include "python_errors.h"
#include "value_encoder.h"

namespace gradwire::python {
namespace {

struct Answer {
  Payload value;
  std::optional<Failure> failure;
};

// The interpreter may end while a function runs. Python then ends the thread where it next asks for the lock, by
// unwinding these frames without it: nothing here may own a Python object, or give the lock back, by a destructor.
py::object CallFunction(const Payload& args) {
  DecodedCall call = DecodeCall(args);
  PyObject* const function = call.function.release().ptr();
  PyObject* const positional = call.args.release().ptr();
  PyObject* const named = call.kwargs.release().ptr();
  PyObject* const result = PyObject_Call(function, positional, named);
  Py_DECREF(function);
  Py_DECREF(positional);
  Py_DECREF(named);
  if (!result) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// Under the lock, once for each call. Nothing of Python's is left when it returns but what the answer holds.
Answer Serve(IncomingCall& call) {
  try {
    py::object result = CallFunction(call.args());
    return {call.keeps_result() ? KeepLocal(std::move(result)) : EncodePython(result), std::nullopt};
  } catch (const py::error_already_set& error) {
    return {{}, DescribeError(error, true)};
  }
}

// What came in too early.
struct Gate {
  using Calls = std::vector<std::shared_ptr<IncomingCall>>;

  // Whether `call` was kept.
  bool Keep(const std::shared_ptr<IncomingCall>& call) {
    const std::lock_guard lock(mutex);
    if (!closed) return false;
    waiting.push_back(call);
    return true;
  }

  std::mutex mutex;
  bool closed = false;
  Calls waiting;
};

// Never freed, as threads of a worker that did not stop in time may still use it.
Gate& TheGate() {
  static auto* gate = new Gate();
  return *gate;
}

// On a pool thread, without the lock.
void Run(const std::shared_ptr<IncomingCall>& call) {
  if (!InterpreterLives()) throw Error(ErrorCode::kDisconnected, "the process is about to end");
  Answer answer;
  const PyGILState_STATE lock = PyGILState_Ensure();
  try {
    answer = Serve(*call);
  } catch (const std::exception&) {
    PyGILState_Release(lock);
    throw;
  }
  PyGILState_Release(lock);
  if (answer.failure) {
    call->Fail(std::move(*answer.failure));
  } else {
    call->Reply(std::move(answer.value));
  }
}

void Handle(const std::shared_ptr<IncomingCall>& call) {
  if (!TheGate().Keep(call)) Run(call);
}

// A call that was kept, later and on another thread.
void RunKept(const std::shared_ptr<IncomingCall>& call) {
  try {
    const std::shared_ptr<void> surroundings = call->Enter();
    Run(call);
  } catch (const Error& error) {
    call->Fail(error.failure());
  }
}

}  // namespace

void HoldCalls() {
  Gate& gate = TheGate();
  const std::lock_guard lock(gate.mutex);
  gate.closed = true;
}

void ServeCalls(Worker& worker) {
  Gate& gate = TheGate();
  Gate::Calls waiting;
  {
    const std::lock_guard lock(gate.mutex);
    gate.closed = false;
    waiting.swap(gate.waiting);
  }
  for (auto& call : waiting) {
    const auto now = worker.NewFuture();
    now->OnDone([call = std::move(call)] { RunKept(call); });
    now->Complete(nullptr);
  }
}

Payload LocalValue::Encode() const {
  const py::gil_scoped_acquire locked;
  try {
    return EncodePython(get());
  } catch (const py::error_already_set& error) {
    throw Error(DescribeError(error, false));
  }
}

const std::shared_ptr<Functions>& ServedFunctions() {
  // Never freed, as threads of a worker that did not stop in time may still use it.
  static const auto* functions = [] {
    auto table = std::make_shared<Functions>();
    table->AddHandler(kPythonFunction, Handle);
    return new std::shared_ptr<Functions>(std::move(table));
  }();
  return *functions;
}

void LoadFunctions(const std::string& path) {
  // Never unloaded: calls of its functions may be running until the process ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::kInvalid, "cannot load functions: " + std::string(dlerror()));
  auto* add = reinterpret_cast<void (*)(Functions&)>(dlsym(library, "gradwire_register"));
  if (!add) throw Error(ErrorCode::kInvalid, "'" + path + "' does not export gradwire_register");
  add(*ServedFunctions());
}

}  // namespace gradwire::python
