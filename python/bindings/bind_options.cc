// The options of init_rpc, with typed constructors: a wrong type is refused where it is written.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "gradwire/error.h"

namespace gradwire::python {
namespace {

struct BackendOptions {
  double rpc_timeout = 60.0;  // seconds; 0: none
  std::string init_method = "env://";
};

struct TransportOptions : BackendOptions {
  int num_worker_threads = 16;
};

TransportOptions MakeOptions(int num_worker_threads, double rpc_timeout, std::string init_method) {
  if (num_worker_threads < 1) throw py::value_error("num_worker_threads must be positive");
  if (!(rpc_timeout >= 0)) throw py::value_error("rpc_timeout must be at least 0");
  TransportOptions options;
  options.num_worker_threads = num_worker_threads;
  options.rpc_timeout = rpc_timeout;
  options.init_method = std::move(init_method);
  return options;
}

}  // namespace

void BindOptions(py::module_& module) {
  py::class_<BackendOptions>(module, "RpcBackendOptions")
      .def(py::init([](double rpc_timeout, std::string init_method) {
             return BackendOptions{rpc_timeout, std::move(init_method)};
           }),
           py::arg("rpc_timeout") = 60.0, py::arg("init_method") = "env://")
      .def_readwrite("rpc_timeout", &BackendOptions::rpc_timeout)
      .def_readwrite("init_method", &BackendOptions::init_method);
  py::class_<TransportOptions, BackendOptions>(module, "TensorPipeRpcBackendOptions")
      .def(py::init(&MakeOptions), py::kw_only(), py::arg("num_worker_threads") = 16, py::arg("rpc_timeout") = 60.0,
           py::arg("init_method") = "env://")
      .def_readonly("num_worker_threads", &TransportOptions::num_worker_threads);
}

}  // namespace gradwire::python
