// gradwire._C: what the Python package stands on. Nothing here starts a thread.
#include "bindings.h"
#include "process_end.h"
#include "python_errors.h"
#include "value_decoder.h"
#include "value_encoder.h"

namespace gradwire::python {
namespace {

// A value there and back, as a call would carry it: what the tests of encoder and decoder call.
py::object RoundTrip(py::handle value) { return DecodePython(EncodePython(value)); }

// Whether the value travels as plain tagged bytes.
bool IsPlain(py::handle value) {
  Payload payload;
  return ValueEncoder(payload).TryPut(value.ptr());
}

}  // namespace
}  // namespace gradwire::python

PYBIND11_MODULE(_C, module) {
  namespace python = gradwire::python;
  python::py::module_::import("torch");  // its types are bound there
  python::WatchTheEnd();
  python::RegisterErrors();
  python::BindWorker(module);
  python::BindReference(module);
  python::BindFuture(module);
  python::BindLaterAnswers(module);
  python::BindScript(module);
  python::BindStore(module);
  python::BindSurroundings(module);
  python::BindAutograd(module);
  python::BindContext(module);
  python::BindOptions(module);
  module.def("average_lock_wait_us", [] { return python::AverageLockWait().count(); });
  module.def("round_trip", python::RoundTrip, pybind11::arg("value"));
  module.def("is_plain", python::IsPlain, pybind11::arg("value"));
}
