// Futures: torch's own, completed by calls, with errors that keep their type.
#include <torch/csrc/jit/python/pybind_utils.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "future_completion.h"
#include "gradwire/ivalue.h"
#include "python_errors.h"
#include "python_worker.h"
#include "value_decoder.h"

namespace gradwire::python {
namespace {

using IValueFuture = c10::intrusive_ptr<c10::ivalue::Future>;
using Wrapper = torch::jit::PythonFutureWrapper;

IValueFuture FutureOf(py::handle future) { return py::cast<std::shared_ptr<Wrapper>>(future)->fut; }

c10::IValue ToIValue(const py::object& value) { return torch::jit::toIValue(value, c10::PyObjectType::get()); }

// A program may complete a future of ours itself; then the outcome is nobody's.
void Fail(const IValueFuture& future, std::exception_ptr error) { future->setErrorIfNeeded(std::move(error)); }

void Succeed(const IValueFuture& future, c10::IValue value) {
  try {
    future->markCompleted(std::move(value));
  } catch (const c10::Error&) {
    if (!future->completed()) throw;
  }
}

void CompleteTyped(const IValueFuture& future, Outcome outcome, const std::string& where, const c10::Type& type) {
  try {
    Succeed(future, DecodeIValue(outcome.value(), type));
  } catch (...) {
    Fail(future, std::make_exception_ptr(Error(Placed(detail::CaughtFailure(), where))));
  }
}

// Runs without the lock; takes it only where Python objects are made.
void Complete(const IValueFuture& future, Outcome outcome, const std::string& where) {
  if (!outcome.ok()) return Fail(future, std::make_exception_ptr(Error(Placed(outcome.failure(), where))));
  if (!InterpreterLives()) return;
  c10::IValue value;
  std::exception_ptr error;
  {
    const CallLock locked;
    try {
      value = ToIValue(DecodePython(outcome.value()));
    } catch (const py::error_already_set& raised) {
      error = std::make_exception_ptr(KeepError(raised, "while the result was read " + where));
    } catch (...) {
      error = std::make_exception_ptr(Error(Placed(detail::CaughtFailure(), where)));
    }
  }
  if (error) return Fail(future, std::move(error));
  Succeed(future, std::move(value));
}

// A future and what completes it, once. Goes with it unused when the worker drops the completion of a call, since it
// has ended: then the future fails (C1).
class Completer {
 public:
  using Body = UniqueFunction<void(const IValueFuture&, Outcome)>;
  Completer(IValueFuture future, Body body) : future_(std::move(future)), body_(std::move(body)) {}
  Completer(Completer&& other) noexcept : future_(std::move(other.future_)), body_(std::move(other.body_)) {}
  ~Completer() {
    if (!future_ || future_->completed() || ProgramEnds() || !InterpreterLives()) return;
    Fail(future_, std::make_exception_ptr(Error(ErrorCode::kDisconnected,
                                                "the worker that made the call has ended before it was answered")));
  }
  void operator()(Outcome outcome) {
    const IValueFuture future = std::move(future_);
    body_(future, std::move(outcome));
  }

 private:
  IValueFuture future_;
  Body body_;
};

// A callback with the Python object that it is given: the very future that it was added to. It runs inside of what it
// was added in. Made and called with the lock, once.
struct Callback {
  Callback(py::object future, py::function function)
      : future(std::move(future)),
        function(std::move(function)),
        context(py::reinterpret_steal<py::object>(PyContext_CopyCurrent())),
        surroundings(PythonSurroundings()) {}
  SharedObject future, function, context;
  const Surroundings surroundings;

  py::object Call() const {
    const Surroundings::Scope scope(surroundings);
    if (PyContext_Enter(context.get().ptr()) < 0) throw py::error_already_set();
    PyObject* const result = PyObject_CallOneArg(function.get().ptr(), future.get().ptr());
    PyContext_Exit(context.get().ptr());
    if (!result) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
  }
};

// Completing a future runs its callbacks, and those complete others: a long chain would end this thread's stack. So
// every few links another thread of the pool goes on. Not a list that this thread works off later: one of its callbacks
// may be waiting for what is in it.
constexpr int kMostLinks = 32;
thread_local int links = 0;

void CompleteInChain(const std::weak_ptr<Worker>& worker, UniqueFunction<void()> complete) {
  struct Link {
    Link() { ++links; }
    ~Link() { --links; }
  };
  const std::shared_ptr<Worker> alive = links < kMostLinks ? nullptr : worker.lock();
  if (!alive) {
    const Link one;
    complete();
    return;
  }
  auto later = alive->NewFuture();
  later->OnDone(std::move(complete));
  later->Complete(nullptr);
}

// Calls the callback when `future` is done and completes `next` with what it returns or raises.
void Then(py::object future, py::function function, py::handle next, const PythonWorker* worker) {
  const IValueFuture source = FutureOf(future);
  auto callback = std::make_shared<Callback>(std::move(future), std::move(function));
  std::weak_ptr<Worker> pool = worker ? worker->shared() : nullptr;
  auto run = [callback = std::move(callback), result = FutureOf(next), pool = std::move(pool)](c10::ivalue::Future&) {
    if (!InterpreterLives()) return;
    c10::IValue value;
    std::exception_ptr error;
    {
      const Locked locked;
      try {
        value = ToIValue(callback->Call());
      } catch (const py::error_already_set& raised) {
        error = std::make_exception_ptr(KeepError(raised, "in a callback"));
      }
    }
    CompleteInChain(pool, [result, value = std::move(value), error = std::move(error)]() mutable {
      error ? Fail(result, std::move(error)) : Succeed(result, std::move(value));
    });
  };
  const py::gil_scoped_release unlocked;
  source->addCallback(std::move(run));
}

void AddDoneCallback(py::object future, py::function function) {
  const IValueFuture source = FutureOf(future);
  auto callback = std::make_shared<Callback>(std::move(future), std::move(function));
  auto run = [callback = std::move(callback)](c10::ivalue::Future&) {
    if (!InterpreterLives()) return;
    const Locked locked;
    try {
      callback->Call();
    } catch (const py::error_already_set& raised) {
      DescribeError(raised, "gradwire: a callback of a future has raised, and nobody waits for it:");
    }
  };
  const py::gil_scoped_release unlocked;
  source->addCallback(std::move(run));
}

void SetException(py::handle future, py::object exception) {
  const IValueFuture target = FutureOf(future);
  auto error = std::make_exception_ptr(KeptException(std::move(exception)));
  const py::gil_scoped_release unlocked;
  target->setError(std::move(error));
}

// Without a worker there is no pool whose threads would have to be replaced.
void WaitAlone(const IValueFuture& future) {
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };
  auto wait = std::make_shared<Wait>();
  future->addCallback([wait](c10::ivalue::Future&) {
    std::lock_guard lock(wait->mutex);
    wait->over = true;
    wait->changed.notify_all();
  });
  std::unique_lock lock(wait->mutex);
  while (!wait->changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return wait->over; })) {
    lock.unlock();
    LookForSignals();
    lock.lock();
  }
}

// Returns when the future is done. The library sees the wait: on a pool thread of `worker` another one runs meanwhile
// (C3), and Ctrl-C ends it.
void Wait(py::handle future, const PythonWorker* worker) {
  const IValueFuture awaited = FutureOf(future);
  if (awaited->completed()) return;
  CheckMayWait();
  const std::shared_ptr<Worker> alive = worker ? worker->shared() : nullptr;
  WithoutLock([&] {
    if (!alive) return WaitAlone(awaited);
    auto over = alive->NewFuture();
    awaited->addCallback([over](c10::ivalue::Future&) { over->Complete(nullptr); });
    over->Wait();
  });
}

}  // namespace

Completion CompletionOf(py::handle future, std::string where, c10::TypePtr result) {
  if (result) {
    return Completer(FutureOf(future), [where = std::move(where), result](const IValueFuture& target, Outcome outcome) {
      CompleteTyped(target, std::move(outcome), where, *result);
    });
  }
  return Completer(FutureOf(future), [where = std::move(where)](const IValueFuture& target, Outcome outcome) {
    Complete(target, std::move(outcome), where);
  });
}

void BindFuture(py::module_& module) {
  py::class_<PythonCall>(module, "Call")
      .def("cancel",
           [](const PythonCall& self) {
             self.process.Check();
             return WithoutLock([&] { return self.handle.Cancel(); });
           })
      .def("check", [](const PythonCall& self) { self.process.Check(); });
  module.def("future_then", Then, py::arg("future"), py::arg("callback"), py::arg("next"), py::arg("worker"));
  module.def("future_add_done_callback", AddDoneCallback, py::arg("future"), py::arg("callback"));
  module.def("future_set_exception", SetException, py::arg("future"), py::arg("exception"));
  module.def("future_wait", Wait, py::arg("future"), py::arg("worker").none(true));
}

}  // namespace gradwire::python
