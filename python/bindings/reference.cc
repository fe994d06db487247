#include "reference.h"

#include <optional>
#include <utility>

#include "future_completion.h"
#include "gradwire/value.h"
#include "of_process.h"
#include "python_errors.h"
#include "python_parts.h"
#include "python_worker.h"
#include "value_decoder.h"

namespace gradwire::python {
namespace {

// The C++ part of an RRef object.
struct ReferenceObject {
  OwnOfProcess<std::shared_ptr<RRefHandle>> handle;
  std::string made_by = {};  // the call, if it was made here
};

// What only C++ gives to the constructor.
struct HandleBox {
  std::shared_ptr<RRefHandle> handle;
  std::string made_by;
};

using Fetching = Outcome (RRefHandle::*)(CallOptions);

template <Fetching fetch>
py::object FetchNow(const ReferenceObject& self, py::handle timeout) {
  const auto handle = self.handle.get();
  const std::string made_by = self.made_by;
  if (!handle->is_owner()) CheckMayWait();
  const CallOptions options = WithTimeout(timeout);
  try {
    Outcome outcome = WithoutLock([&] { return (handle.get()->*fetch)(options); }, LookForSignalsAndLoops);
    return DecodePython(outcome.value());
  } catch (const Error& error) {
    RaiseFailure(Placed(error.failure(), made_by));
  }
}

// Completes `future` when the creating call has ended; at once for a reference that no call of this handle made.
void AwaitCreation(const ReferenceObject& self, py::handle future) {
  Completion done = CompletionOf(future, self.made_by);
  const std::shared_ptr<detail::FutureState> creation = self.handle.get()->creation().state();
  WithoutLock([&] {
    if (!creation) return done(EncodeValue(std::optional<bool>()));
    creation->OnDone([creation, done = std::move(done)]() mutable {
      try {
        creation->Wait();
        done(EncodeValue(std::optional<bool>()));
      } catch (const Error& error) {
        done(error.failure());
      }
    });
  });
}

// A wait that must not take the lock away from others.
bool Confirmed(const ReferenceObject& self) {
  const auto handle = self.handle.get();
  return WithoutLock([&] { return handle->confirmed_by_owner(); });
}

std::string Describe(const ReferenceObject& self) {
  const RRefHandle& handle = *self.handle.get_anyway();
  if (handle.is_owner()) return "OwnerRRef(" + handle.rref_id() + ")";
  return "UserRRef(RRefId = " + handle.rref_id() + ", ForkId = " + handle.fork_id() + ")";
}

}  // namespace

std::shared_ptr<RRefHandle> HandleOf(PyObject* object) {
  // Most objects are something else: the class itself is asked first, without a look into pybind11's tables.
  static PyTypeObject* const base = reinterpret_cast<PyTypeObject*>(py::type::of<ReferenceObject>().ptr());
  if (!PyType_IsSubtype(Py_TYPE(object), base)) return nullptr;
  return py::cast<ReferenceObject&>(py::handle(object)).handle.get();
}

py::object MakeRRef(std::shared_ptr<RRefHandle> handle, std::string made_by) {
  return Parts().rref.attr("_of")(HandleBox{std::move(handle), std::move(made_by)});
}

void BindReference(py::module_& module) {
  py::class_<HandleBox>(module, "Handle");
  py::class_<ReferenceObject>(module, "Reference")
      .def(py::init([](PythonWorker& worker, py::object value, std::string type_name) {
             return ReferenceObject{worker.Own(std::move(value), std::move(type_name))};
           }),
           py::arg("worker"), py::arg("value"), py::arg("type_name"))
      .def(py::init([](const HandleBox& box) {
             return ReferenceObject{box.handle, box.made_by};
           }),
           py::arg("handle"))
      .def("_fetch", FetchNow<&RRefHandle::FetchAndWait>, py::arg("timeout"))
      .def("_local", FetchNow<&RRefHandle::LocalValue>, py::arg("timeout"))
      .def("is_owner", [](const ReferenceObject& self) { return self.handle.get_anyway()->is_owner(); })
      .def("owner", [](const ReferenceObject& self) { return self.handle.get_anyway()->owner(); })
      .def("owner_name", [](const ReferenceObject& self) { return self.handle.get_anyway()->owner().name; })
      .def("confirmed_by_owner", Confirmed)
      .def("_await_creation", AwaitCreation, py::arg("future"))
      .def("_check_usable", [](const ReferenceObject& self) { self.handle.get()->CheckSendable(); })
      .def("_type_name", [](const ReferenceObject& self) { return self.handle.get_anyway()->type_name(); })
      .def("__str__", Describe)
      .def("__repr__", Describe);
}

}  // namespace gradwire::python
