#include "python_handler.h"

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call_encoder.h"
#include "function_name.h"
#include "later_answer.h"
#include "local_value.h"
#include "python_errors.h"
#include "python_parts.h"
#include "registered_function.h"
#include "script_call.h"
#include "value_encoder.h"

namespace gradwire::python {
namespace {

// What a function has answered; nothing when its answer comes later.
struct Answer {
  std::optional<Payload> value;
  std::optional<Failure> failure;
};

struct Returned {
  py::object value;
  bool asynchronous = false;
};

// A new reference, or nothing and an error. Builtins such as eval() look at the frame that calls them: `through` gives
// them one. The interpreter may end while the function runs; its unwinding of this thread ends here (process_end.h).
PyObject* Call(PyObject* through, PyObject* function, PyObject* positional, PyObject* named) noexcept {
  PyObject* const result = through ? PyObject_CallFunctionObjArgs(through, function, positional, named, nullptr)
                                   : PyObject_Call(function, positional, named);
  if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the function failed without an exception");
  return result;
}

Returned CallFunction(IncomingCall& incoming, std::string& shown_as) {
  const bool by_own_name = incoming.function() == kPythonFunction;
  DecodedCall call = by_own_name ? DecodeCall(incoming.args()) : DecodeRegisteredCall(incoming);
  PyObject* const function = call.function.ptr();
  shown_as = ShownName(function, call.args.ptr());
  if (by_own_name) incoming.ShowAs(shown_as);
  const bool asynchronous = AsynchronousFunction(function) != nullptr;
  PyObject* const through = PyCFunction_Check(function) ? Parts().call_builtin.ptr() : nullptr;
  // What the function sets in it is no other's.
  const auto context = py::reinterpret_steal<py::object>(NewPythonContext());
  PyContext_Enter(context.ptr());
  PyObject* const result = Call(through, function, call.args.ptr(), call.kwargs.ptr());
  PyContext_Exit(context.ptr());
  if (!result) throw py::error_already_set();
  return {py::reinterpret_steal<py::object>(result), asynchronous};
}

Payload EncodeResult(IncomingCall& call, py::object result) {
  if (call.keeps_result()) return KeepLocal(std::move(result));
  return call.function() == kPythonFunction ? EncodePython(result) : EncodeRegisteredResult(call, result);
}

// What stands above the traceback of a call's function; nothing when nobody is to see it.
std::string Heading(const IncomingCall& call, const std::string& shown_as) {
  if (call.cancelled()) return {};
  const std::string what = shown_as.empty() ? "a call that cannot be read" : "'" + shown_as + "'";
  return "gradwire: " + what + ", called by worker '" + call.caller().name + "', has raised:";
}

// Runs `make` under the lock. Nothing of Python's is left when it returns but what the answer holds.
template <class F>
Answer UnderLock(const IncomingCall& call, const std::string& shown_as, F make) {
  if (!InterpreterLives()) throw Error(ErrorCode::kDisconnected, "the process is about to end");
  Answer answer;
  const Locked locked;
  try {
    answer.value = make();
  } catch (const py::error_already_set& error) {
    answer.failure = DescribeError(error, Heading(call, shown_as));
  }
  return answer;
}

void Send(IncomingCall& call, Answer answer) {
  if (answer.failure) {
    call.Fail(std::move(*answer.failure));
  } else if (answer.value) {
    call.Reply(std::move(*answer.value));
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
  const ServedFunctionRuns runs;
  std::string shown_as;
  Send(*call, UnderLock(*call, shown_as, [&]() -> std::optional<Payload> {
    Returned returned = CallFunction(*call, shown_as);
    if (AnswerLater(call, returned.value, returned.asynchronous, shown_as)) return std::nullopt;
    return EncodeResult(*call, std::move(returned.value));
  }));
}

}  // namespace

void HandlePythonCall(const std::shared_ptr<IncomingCall>& call) {
  if (!TheGate().Keep(call)) Run(call);
}

void AnswerWith(const std::shared_ptr<IncomingCall>& call, const std::function<py::object()>& value,
                const std::string& shown_as) {
  Send(*call, UnderLock(*call, shown_as, [&] { return EncodeResult(*call, value()); }));
}

void HoldCalls() {
  Gate& gate = TheGate();
  const std::lock_guard lock(gate.mutex);
  gate.closed = true;
}

void ServeCalls() {
  Gate& gate = TheGate();
  Gate::Calls waiting;
  {
    const std::lock_guard lock(gate.mutex);
    gate.closed = false;
    waiting.swap(gate.waiting);
  }
  for (auto& call : waiting) {
    call->Post([call] {
      if (!call->RefuseIfLate()) Run(call);
    });
  }
}

Payload LocalValue::Encode() const {
  const Locked locked;
  try {
    return EncodePython(get());
  } catch (const py::error_already_set& error) {
    throw Error(DescribeError(error));
  }
}

const std::shared_ptr<Functions>& ServedFunctions() {
  // Never freed, as threads of a worker that did not stop in time may still use it.
  static const auto* functions = [] {
    auto table = std::make_shared<Functions>();
    table->AddHandler(kPythonFunction, HandlePythonCall);
    ServeScriptFunctions(*table);
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
