// The options of init_rpc, with typed constructors: a wrong type is refused where it is written.
#include <c10/core/Device.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.h"
#include "gradwire/error.h"

namespace gradwire::python {
namespace {

using DeviceMap = std::unordered_map<c10::Device, c10::Device>;
using Names = std::optional<std::vector<std::string>>;

struct BackendOptions {
  double rpc_timeout = 60.0;  // seconds; 0: none
  std::string init_method = "env://";
};

struct TransportOptions : BackendOptions {
  int num_worker_threads = 16;
  Names transports, channels;
  std::unordered_map<std::string, DeviceMap> device_maps;  // by the name of the worker that tensors go to
  std::vector<c10::Device> devices;
};

int CheckedThreads(int num_worker_threads) {
  if (num_worker_threads < 1) throw py::value_error("num_worker_threads must be positive");
  return num_worker_threads;
}

TransportOptions MakeOptions(int num_worker_threads, Names transports, Names channels, double rpc_timeout,
                             std::string init_method, std::unordered_map<std::string, DeviceMap> device_maps,
                             std::vector<c10::Device> devices) {
  if (!(rpc_timeout >= 0)) throw py::value_error("rpc_timeout must be at least 0");
  TransportOptions options;
  options.num_worker_threads = CheckedThreads(num_worker_threads);
  options.rpc_timeout = rpc_timeout;
  options.init_method = std::move(init_method);
  options.transports = std::move(transports);
  options.channels = std::move(channels);
  options.device_maps = std::move(device_maps);
  options.devices = std::move(devices);
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
  py::class_<TransportOptions, BackendOptions>(module, "TransportOptions")
      .def(py::init(&MakeOptions), py::kw_only(), py::arg("num_worker_threads") = 16,
           py::arg("_transports") = py::none(), py::arg("_channels") = py::none(), py::arg("rpc_timeout") = 60.0,
           py::arg("init_method") = "env://", py::arg("device_maps") = py::dict(), py::arg("devices") = py::list())
      .def_property(
          "num_worker_threads", [](const TransportOptions& self) { return self.num_worker_threads; },
          [](TransportOptions& self, int threads) { self.num_worker_threads = CheckedThreads(threads); })
      .def_readonly("_transports", &TransportOptions::transports)
      .def_readonly("_channels", &TransportOptions::channels)
      .def_readwrite("device_maps", &TransportOptions::device_maps)
      .def_readwrite("devices", &TransportOptions::devices);
}

}  // namespace gradwire::python
