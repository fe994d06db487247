// PythonWorker: a Worker as Python holds it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gil.h"
#include "gradwire/worker.h"
#include "of_process.h"

namespace gradwire::python {

// What Python says for "the default" of a timeout in seconds.
inline constexpr double kUnsetTimeout = -1.0;

// Seconds as Python gives them: 0 is none, a negative number the default. Rounded up: a short time is not none.
std::chrono::milliseconds ToMilliseconds(double seconds);
// The same of what a program has written; raises TypeError for what is no number. With the lock.
CallOptions WithTimeout(py::handle seconds);

// A Fault as Python writes it: function, remote, failures, delay in seconds.
using FaultTuple = std::tuple<std::string, std::optional<bool>, int, double>;

// A call under way as Python holds it.
struct PythonCall {
  CallHandle handle;
  OfProcess process = {};
};

// All methods with the lock; those that wait let go of it.
class PythonWorker {
 public:
  PythonWorker(const std::string& name, int rank, int world_size, py::handle store, double rpc_timeout,
               double init_timeout, double heartbeat_limit, size_t num_worker_threads, std::string published,
               const std::vector<FaultTuple>& faults);
  ~PythonWorker();
  PythonWorker(const PythonWorker&) = delete;

  // To a name, a rank or a WorkerInfo.
  py::object CallSync(py::handle to, py::handle function, py::handle args, py::handle kwargs, py::handle timeout);
  // Completes `future`, a gradwire Future. Raises at once only what is wrong with the arguments.
  PythonCall CallAsync(py::handle future, py::handle to, py::handle function, py::handle args, py::handle kwargs,
                       py::handle timeout);
  py::object Remote(py::handle to, py::handle function, py::handle args, py::handle kwargs, py::handle timeout);
  std::shared_ptr<RRefHandle> Own(py::object value, std::string type_name);

  // Name -> value of each worker; `names` None: all. When to encode and decode here has taken longer than `own_limit`
  // (seconds; 0: none), Error(kTimedOut) in the end: the others have not waited in vain.
  py::dict AllGather(py::handle value, const std::optional<std::vector<std::string>>& names, py::handle timeout,
                     std::string shown_as, double own_limit);

  // callback(info, reason), with the lock, on a thread of the worker; what it raises is logged.
  void OnWorkerLost(py::object callback);

  // Until this is called, calls of Python functions from others wait here.
  void Serve();

  WorkerInfo Find(py::handle to) const;
  void Shutdown(bool graceful, double timeout);
  // Forgets the worker without ending it: in a forked child, where its threads are not.
  void Abandon();

  Worker& worker() const;
  const std::shared_ptr<Worker>& shared() const { return worker_; }

 private:
  std::shared_ptr<Worker> worker_;
};

}  // namespace gradwire::python
