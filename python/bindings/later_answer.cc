#include "later_answer.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "python_errors.h"
#include "python_handler.h"
#include "python_parts.h"

namespace gradwire::python {
namespace {

using Wrapper = torch::jit::PythonFutureWrapper;

// What a marked function's own attributes say, and a method's function's.
PyObject* Attributes(PyObject* function) {
  if (PyMethod_Check(function)) function = PyMethod_GET_FUNCTION(function);
  return PyFunction_Check(function) ? reinterpret_cast<PyFunctionObject*>(function)->func_dict : nullptr;
}

void AnswerWhenDone(const std::shared_ptr<IncomingCall>& call, const py::object& future, const std::string& shown_as) {
  const auto wrapper = py::cast<std::shared_ptr<Wrapper>>(future);
  // Not owned by its own callback. Who completes it holds it; without a holder it has nothing of its own any more.
  auto answer = [call, shown_as, weak = std::weak_ptr<Wrapper>(wrapper)](c10::ivalue::Future& done) {
    auto complete = weak.lock();
    if (!complete) {
      complete =
          std::make_shared<Wrapper>(c10::intrusive_ptr<c10::ivalue::Future>::unsafe_reclaim_from_nonowning(&done));
    }
    // Whoever completes a future may hold locks of the program.
    call->Post([call, shown_as, complete = std::move(complete)] {
      AnswerWith(
          call, [&] { return Parts().future_value(complete); }, shown_as);
    });
  };
  const auto inner = wrapper->fut;
  const py::gil_scoped_release unlocked;
  inner->addCallback(std::move(answer));
}

// A call whose coroutine is to run.
class ServedCall {
 public:
  explicit ServedCall(std::shared_ptr<IncomingCall> call) : call_(std::move(call)) {}

  // Calls `tell` when nobody awaits the result any more.
  void OnCancelled(py::object tell) {
    auto shared = std::make_shared<SharedObject>(std::move(tell));
    const py::gil_scoped_release unlocked;
    call_->OnCancelled([shared = std::move(shared)] {
      if (!InterpreterLives()) return;
      const Locked locked;
      try {
        py::reinterpret_borrow<py::object>(shared->get())();
      } catch (const py::error_already_set& error) {
        DescribeError(error, "gradwire: the cancel of a coroutine has raised:");
      }
    });
  }

 private:
  const std::shared_ptr<IncomingCall> call_;
};

}  // namespace

PyObject* AsynchronousFunction(PyObject* function) {
  static PyObject* const mark = PyUnicode_InternFromString("_async_execution");
  PyObject* const attributes = Attributes(function);
  return attributes ? PyDict_GetItemWithError(attributes, mark) : nullptr;
}

bool AnswerLater(const std::shared_ptr<IncomingCall>& call, const py::object& result, bool asynchronous,
                 const std::string& shown_as) {
  if (PyCoro_CheckExact(result.ptr())) {
    const auto context = py::reinterpret_steal<py::object>(NewPythonContext());
    AnswerWhenDone(call, Parts().start_coroutine(result, context, std::make_unique<ServedCall>(call)), shown_as);
    return true;
  }
  if (!asynchronous && Py_TYPE(result.ptr()) != reinterpret_cast<PyTypeObject*>(Parts().later.ptr())) return false;
  const py::object future = asynchronous ? result : result.attr("future");
  if (!py::isinstance<Wrapper>(future)) {
    PyErr_Format(PyExc_RuntimeError,
                 "Functions decorated with @rpc.async_function must return a torch.futures.Future object, not %s",
                 Py_TYPE(future.ptr())->tp_name);
    throw py::error_already_set();
  }
  AnswerWhenDone(call, future, shown_as);
  return true;
}

void BindLaterAnswers(py::module_& module) {
  module.def("forbid_waits", ForbidWaits);
  py::class_<ServedCall>(module, "ServedCall").def("on_cancelled", &ServedCall::OnCancelled, py::arg("tell"));
}

}  // namespace gradwire::python
