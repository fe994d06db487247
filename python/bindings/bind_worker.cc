// Workers, what they are called, and the options of init_rpc.
#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cctype>

#include "gil.h"
#include "python_handler.h"
#include "python_worker.h"
#include "registered_function.h"
#include "release.h"

namespace gradwire::python {
namespace {

WorkerInfo CheckedInfo(std::string name, int64_t id, uint32_t incarnation = 0) {
  if (name.empty()) throw Error(ErrorCode::kInvalid, "Worker name must be non-empty");
  if (name.size() >= 128) throw Error(ErrorCode::kInvalid, "Worker name must be shorter than 128 characters");
  const bool valid = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':' || c == '-'; });
  if (!valid) {
    throw Error(ErrorCode::kInvalid, "Worker name must match [A-Za-z0-9_:-]+, which '" + name + "' does not");
  }
  return {std::move(name), id, incarnation};
}

void BindWorkerInfo(py::module_& module) {
  py::class_<WorkerInfo>(module, "WorkerInfo")
      .def(py::init([](std::string name, int64_t id) { return CheckedInfo(std::move(name), id); }), py::arg("name"),
           py::arg("id"))
      .def_readonly("name", &WorkerInfo::name)
      .def_readonly("id", &WorkerInfo::id)
      .def(py::self == py::self)
      .def("__hash__", [](const WorkerInfo& self) { return py::hash(py::make_tuple(self.name, self.id)); })
      .def("__repr__",
           [](const WorkerInfo& self) {
             return "WorkerInfo(id=" + std::to_string(self.id) + ", name=" + self.name + ")";
           })
      .def(py::pickle([](const WorkerInfo& self) { return py::make_tuple(self.name, self.id, self.incarnation); },
                      [](const py::tuple& state) {
                        return CheckedInfo(py::cast<std::string>(state[0]), py::cast<int64_t>(state[1]),
                                           py::cast<uint32_t>(state[2]));
                      }));
}

py::dict CountsOf(const PythonWorker& self) {
  const Worker::Counts counts = self.worker().counts();
  py::dict named;
  named["pending_calls"] = counts.pending_calls;
  named["serving_calls"] = counts.serving_calls;
  named["owned_rrefs"] = counts.owned_rrefs;
  named["forks"] = counts.forks;
  named["held_rrefs"] = counts.held_rrefs;
  named["creating_rrefs"] = counts.creating_rrefs;
  named["waiting_fetches"] = counts.waiting_fetches;
  named["rref_entries"] = counts.rref_entries;
  named["autograd_contexts"] = counts.autograd_contexts;
  named["backward_passes"] = counts.backward_passes;
  return named;
}

}  // namespace

void BindWorker(py::module_& module) {
  BindWorkerInfo(module);
  module.attr("UNSET_TIMEOUT") = kUnsetTimeout;
  module.attr("OPEN_GROUP") = WorkerOptions::kOpenGroup;
  module.def("is_worker_thread", IsWorkerThread);
  module.def("note_fork", [] {
    OfProcess::NoteFork();
    ForgetReleases();
  });
  module.def("note_exit", NoteExit);
  module.def("load_functions", LoadFunctions, py::arg("path"));
  module.def("register_function", RegisterFunction, py::arg("name"), py::arg("function"));
  module.def("unregister_function", UnregisterFunction, py::arg("name"));
  py::class_<PythonWorker, std::shared_ptr<PythonWorker>>(module, "Worker")
      .def(py::init<const std::string&, int, int, py::handle, double, double, double, size_t, std::string,
                    const std::vector<FaultTuple>&>(),
           py::kw_only(), py::arg("name"), py::arg("rank"), py::arg("world_size"), py::arg("store"),
           py::arg("rpc_timeout"), py::arg("init_timeout"), py::arg("heartbeat_limit") = 10.0,
           py::arg("num_worker_threads"), py::arg("published") = "",
           py::arg("faults") = std::vector<FaultTuple>())
      .def("call_sync", &PythonWorker::CallSync, py::arg("to"), py::arg("func"), py::arg("args"), py::arg("kwargs"),
           py::arg("timeout"))
      .def("call_async", &PythonWorker::CallAsync, py::arg("future"), py::arg("to"), py::arg("func"), py::arg("args"),
           py::arg("kwargs"), py::arg("timeout"))
      .def("remote", &PythonWorker::Remote, py::arg("to"), py::arg("func"), py::arg("args"), py::arg("kwargs"),
           py::arg("timeout"))
      .def("all_gather", &PythonWorker::AllGather, py::arg("value"), py::arg("names"), py::arg("timeout"),
           py::arg("shown_as") = "all_gather", py::arg("own_limit") = 0.0)
      .def("on_worker_lost", &PythonWorker::OnWorkerLost, py::arg("callback"))
      .def("group_is_open", [](PythonWorker& self) { return self.worker().group_is_open(); })
      .def("info", [](PythonWorker& self) { return self.worker().info(); })
      .def("published",
           [](PythonWorker& self) {
             py::dict all;
             for (const WorkerInfo& info : self.worker().worker_infos()) {
               all[py::str(info.name)] = self.worker().published(info.id);
             }
             return all;
           })
      .def("find", &PythonWorker::Find, py::arg("worker"))
      .def("infos", [](PythonWorker& self) { return self.worker().worker_infos(); })
      .def("rpc_timeout",
           [](PythonWorker& self) { return static_cast<double>(self.worker().rpc_timeout().count()) / 1000; })
      .def(
          "set_rpc_timeout",
          [](PythonWorker& self, double seconds) { self.worker().set_rpc_timeout(ToMilliseconds(seconds)); },
          py::arg("seconds"))
      .def("serve", &PythonWorker::Serve)
      .def(
          "await_quiet",
          [](PythonWorker& self, double timeout) {
            const auto limit = std::max(ToMilliseconds(timeout), std::chrono::milliseconds(0));
            WithoutLock([&] { self.worker().AwaitQuiet(limit); });
          },
          py::arg("timeout"))
      .def("drop_references", [](PythonWorker& self) { WithoutLock([&] { self.worker().DropReferences(); }); })
      .def("leaks", [](PythonWorker& self) { return self.worker().Leaks(); })
      .def("counts", &CountsOf)
      .def("shutdown", &PythonWorker::Shutdown, py::arg("graceful"), py::arg("timeout"))
      .def("abandon", &PythonWorker::Abandon);
}

}  // namespace gradwire::python
