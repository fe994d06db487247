#include "python_worker.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bindings.h"
#include "call_encoder.h"
#include "function_name.h"
#include "future_completion.h"
#include "local_value.h"
#include "python_errors.h"
#include "python_handler.h"
#include "python_parts.h"
#include "reference.h"
#include "release.h"
#include "script_call.h"
#include "store.h"
#include "value_decoder.h"
#include "value_encoder.h"

namespace gradwire::python {

namespace {
// A Python function that never returns must not keep its process from ending.
constexpr std::chrono::milliseconds kStopLimit{2000};

// How errors name a call.
std::string Named(const WorkerInfo& callee, const std::string& shown_as) {
  return "in the call of '" + shown_as + "' on worker '" + callee.name + "'";
}

// Runs `send`; what it refuses is refused with the name of the call.
template <class F>
auto Naming(const std::string& call, F send) {
  const auto rethrow = [&](py::error_already_set error) {
    if (error.matches(PyExc_Exception)) Parts().add_note(error.value(), call);
    throw error;
  };
  try {
    return send();
  } catch (const Error& error) {
    throw Error(Placed(error.failure(), call));
  } catch (const py::error_already_set& error) {
    rethrow(error);
    throw;
  } catch (const py::builtin_exception& error) {
    error.set_error();
    rethrow(py::error_already_set());
    throw;
  } catch (const std::runtime_error& error) {  // from libtorch
    PyErr_SetString(PyExc_RuntimeError, error.what());
    rethrow(py::error_already_set());
    throw;
  }
}

std::shared_ptr<Faults> MakeFaults(const std::vector<FaultTuple>& tuples) {
  if (tuples.empty()) return nullptr;
  std::vector<Fault> faults;
  for (const auto& [function, remote, failures, delay] : tuples) {
    faults.push_back({function, remote, failures, std::max(ToMilliseconds(delay), std::chrono::milliseconds(0))});
  }
  return std::make_shared<Faults>(std::move(faults));
}
}  // namespace

std::chrono::milliseconds ToMilliseconds(double seconds) {
  constexpr double kLongest = 1e12;  // milliseconds: 30 years, and no overflow when added to a time
  if (std::isnan(seconds)) throw py::value_error("a timeout must be a number of seconds");
  if (seconds < 0) return CallOptions::kDefaultTimeout;
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(std::min(seconds * 1000, kLongest))));
}

CallOptions WithTimeout(py::handle seconds) {
  const double number = PyFloat_AsDouble(seconds.ptr());
  if (number == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw py::type_error("timeout must be a number of seconds (0: none; without it the default), not " +
                         std::string(py::repr(seconds)));
  }
  return {.timeout = ToMilliseconds(number)};
}

PythonWorker::PythonWorker(const std::string& name, int rank, int world_size, py::handle store, double rpc_timeout,
                           double init_timeout, double heartbeat_limit, size_t num_worker_threads,
                           std::string published, const std::vector<FaultTuple>& faults) {
  WorkerOptions options;
  options.name = name;
  options.rank = rank;
  options.world_size = world_size;
  options.store = StoreOf(store);
  options.rpc_timeout = ToMilliseconds(rpc_timeout);
  options.init_timeout = ToMilliseconds(init_timeout);
  options.heartbeat_limit = ToMilliseconds(heartbeat_limit);
  options.num_worker_threads = num_worker_threads;
  options.faults = MakeFaults(faults);
  options.published = std::move(published);
  options.functions = ServedFunctions();
  options.thread_start = EnterThread;
  options.thread_stop = LeaveThread;
  options.stop_limit = kStopLimit;
  options.describe_error = DescribeCaught;
  StartReleases();
  HoldCalls();
  worker_ = WithoutLock([&] { return std::make_shared<Worker>(std::move(options)); });
  KnowReducers(*worker_);
}

PythonWorker::~PythonWorker() {
  if (!worker_) return;
  if (!InterpreterLives()) {
    Abandon();
    return;
  }
  const py::gil_scoped_release unlocked;
  worker_.reset();
}

Worker& PythonWorker::worker() const {
  if (!worker_) throw Error(ErrorCode::kInvalid, "RPC has not been initialized in this process");
  return *worker_;
}

WorkerInfo PythonWorker::Find(py::handle to) const {
  const Worker& worker = this->worker();
  if (PyUnicode_Check(to.ptr())) return worker.worker_info(py::cast<std::string>(to));
  if (py::isinstance<WorkerInfo>(to)) return py::cast<WorkerInfo>(to);
  if (PyLong_Check(to.ptr()) && !PyBool_Check(to.ptr())) {
    int overflow = 0;
    const long long rank = PyLong_AsLongLongAndOverflow(to.ptr(), &overflow);
    return worker.worker_info(overflow != 0 ? -1 : rank);
  }
  throw py::value_error("a worker is named by its name, its rank or its WorkerInfo, not by " +
                        std::string(py::repr(to)));
}

py::object PythonWorker::CallSync(py::handle to, py::handle function, py::handle args, py::handle kwargs,
                                  py::handle timeout) {
  CheckMayWait();
  Worker& worker = this->worker();
  const WorkerInfo callee = Find(to);
  CallOptions options = WithTimeout(timeout);
  options.shown_as = ShownName(function.ptr(), args.ptr());
  const std::string where = Named(callee, options.shown_as);
  EncodedCall call;
  Outcome outcome = Naming(where, [&] {
    call = EncodeCall(function, args, kwargs);
    return WithoutLock(
        [&] { return worker.SendAndWait(callee, call.function, std::move(call.args), std::move(options)); });
  });
  if (!outcome.ok()) RaiseFailure(Placed(outcome.failure(), where));
  return Naming("while the result was read " + where, [&] {
    return call.is_script ? DecodeScriptResult(outcome.value(), *call.result) : DecodePython(outcome.value());
  });
}

PythonCall PythonWorker::CallAsync(py::handle future, py::handle to, py::handle function, py::handle args,
                                   py::handle kwargs, py::handle timeout) {
  Worker& worker = this->worker();
  const WorkerInfo callee = Find(to);
  CallOptions options = WithTimeout(timeout);
  options.shown_as = ShownName(function.ptr(), args.ptr());
  const std::string where = Named(callee, options.shown_as);
  return Naming(where, [&] {
    EncodedCall call = EncodeCall(function, args, kwargs);
    Completion done = CompletionOf(future, where, std::move(call.result));
    return PythonCall{WithoutLock(
        [&] { return worker.Send(callee, call.function, std::move(call.args), std::move(options), std::move(done)); })};
  });
}

py::object PythonWorker::Remote(py::handle to, py::handle function, py::handle args, py::handle kwargs,
                                py::handle timeout) {
  Worker& worker = this->worker();
  const WorkerInfo callee = Find(to);
  CallOptions options = WithTimeout(timeout);
  options.shown_as = ShownName(function.ptr(), args.ptr());
  std::string where = Named(callee, options.shown_as);
  auto handle = Naming(where, [&] {
    EncodedCall call = EncodeCall(function, args, kwargs);
    return WithoutLock([&] { return worker.Remote(callee, call.function, std::move(call.args), std::move(options)); });
  });
  return MakeRRef(std::move(handle), std::move(where));
}

std::shared_ptr<RRefHandle> PythonWorker::Own(py::object value, std::string type_name) {
  Worker& worker = this->worker();
  Payload payload = KeepLocal(std::move(value));
  return WithoutLock([&] { return worker.Own(std::move(payload), std::move(type_name)); });
}

py::dict PythonWorker::AllGather(py::handle value, const std::optional<std::vector<std::string>>& names,
                                 py::handle timeout, std::string shown_as, double own_limit) {
  CheckMayWait();
  Worker& worker = this->worker();
  const auto begin = std::chrono::steady_clock::now();
  Payload payload = EncodePython(value);
  const auto encoded = std::chrono::steady_clock::now();
  CallOptions options = WithTimeout(timeout);
  options.shown_as = std::move(shown_as);
  const auto parts = WithoutLock([&] {
    return worker.AllGather(std::move(payload), names.value_or(std::vector<std::string>()), std::move(options));
  });
  const auto gathered = std::chrono::steady_clock::now();
  py::dict values;
  for (const auto& [name, part] : parts) values[py::str(name)] = DecodePython(part);
  const auto own = encoded - begin + (std::chrono::steady_clock::now() - gathered);
  if (own_limit > 0 && own > ToMilliseconds(own_limit)) {
    throw Error(ErrorCode::kTimedOut, "RPC ran for more than set timeout (" +
                                          std::to_string(ToMilliseconds(own_limit).count()) +
                                          " ms): so long it took to pickle and unpickle what was gathered");
  }
  return values;
}

void PythonWorker::OnWorkerLost(py::object callback) {
  Worker& worker = this->worker();
  auto held = std::make_shared<SharedObject>(std::move(callback));
  auto tell = [held](const WorkerInfo& lost, const Failure& reason) {
    if (!InterpreterLives()) return;
    const Locked locked;
    try {
      held->get()(lost, reason.text);
    } catch (const py::error_already_set& error) {
      throw Error(ErrorCode::kRemote, error.what());
    }
  };
  WithoutLock([&] { worker.on_worker_lost(std::move(tell)); });
}

void PythonWorker::Serve() { ServeCalls(); }

void PythonWorker::Shutdown(bool graceful, double timeout) {
  if (!worker_) return;
  const auto limit = std::max(ToMilliseconds(timeout), std::chrono::milliseconds(0));
  WithoutLock([&] { worker_->shutdown(graceful, limit); });
  ReleaseNow();
}

void PythonWorker::Abandon() {
  new std::shared_ptr<Worker>(std::move(worker_));  // never freed: its destructor would wait for its threads
  worker_.reset();
}

}  // namespace gradwire::python
