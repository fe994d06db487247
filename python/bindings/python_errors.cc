#include "python_errors.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "python_parts.h"

namespace gradwire::python {
namespace {

// Not copied: a pickle may hold any byte.
py::bytes Bytes(const std::string& bytes) { return py::bytes(bytes.data(), bytes.size()); }

// Texts come from peers and from C++: not always UTF-8.
py::object Text(const std::string& text) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

py::object WithFrames(const py::error_already_set& error) {
  py::object exception = error.value();
  if (error.trace()) PyException_SetTraceback(exception.ptr(), error.trace().ptr());
  return exception;
}

constexpr const char* kNoText = "what it says could not be found out";

std::string TypeName(const py::error_already_set& error) {
  return reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name;
}

void Raise(py::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

py::object Rebuild(const py::object& rebuild, const Failure& failure) {
  return rebuild(std::string(ErrorCodeName(failure.code)), Text(failure.text), Text(failure.worker),
                 Text(failure.type_name), Text(failure.traceback), Bytes(failure.pickled));
}

void Translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const KeptException& kept) {
    Raise(kept.Fresh());
  } catch (const Error& error) {
    try {
      Raise(ToException(error.failure()));
    } catch (py::error_already_set& broken) {
      broken.restore();
    }
  }
}

}  // namespace

py::object KeptException::Fresh() const {
  try {
    return Parts().fresh(get());
  } catch (const py::error_already_set&) {
    return py::reinterpret_borrow<py::object>(get());
  }
}

Failure DescribeError(const py::error_already_set& error, const std::string& heading) {
  try {
    const py::tuple parts = Parts().describe(WithFrames(error), Text(heading));
    return {.code = ErrorCode::kRemote,
            .text = py::cast<std::string>(parts[0]),
            .type_name = py::cast<std::string>(parts[1]),
            .traceback = py::cast<std::string>(parts[2]),
            .pickled = py::cast<std::string>(parts[3])};
  } catch (const std::exception&) {  // no memory, no stack, or Ctrl-C just now
    return {.code = ErrorCode::kRemote, .text = kNoText, .type_name = TypeName(error)};
  }
}

std::optional<Failure> DescribeCaught(const std::exception_ptr& caught) {
  if (!InterpreterLives()) return std::nullopt;
  const Locked lock;
  try {
    std::rethrow_exception(caught);
  } catch (python_error& error) {
    error.persist();  // hooks leave it set in the thread
    error.restore();
    return DescribeError(py::error_already_set());
  } catch (const py::error_already_set& error) {
    return DescribeError(error);
  } catch (const KeptException& kept) {
    Raise(kept.get());
    return DescribeError(py::error_already_set());
  } catch (...) {
    return std::nullopt;
  }
}

KeptException KeepError(const py::error_already_set& error, const std::string& where) {
  try {
    return KeptException(Parts().both(WithFrames(error), where));
  } catch (const py::error_already_set&) {
    return KeptException(py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(TypeName(error) + ": " + kNoText));
  }
}

Failure Placed(Failure failure, const std::string& where) {
  constexpr ErrorCode kNamed[] = {ErrorCode::kRemote, ErrorCode::kTimedOut, ErrorCode::kCancelled,
                                  ErrorCode::kDisconnected};
  const bool is_named = std::find(std::begin(kNamed), std::end(kNamed), failure.code) != std::end(kNamed);
  if (!is_named && !where.empty()) failure.text += " (" + where + ")";
  return failure;
}

py::object ToException(const Failure& failure) { return Rebuild(Parts().rebuild, failure); }

void RaiseFailure(const Failure& failure) {
  Raise(ToException(failure));
  throw py::error_already_set();
}

void RaisePassFailure(const Failure& failure) {
  Raise(Rebuild(Parts().rebuild_of_pass, failure));
  throw py::error_already_set();
}

void RegisterErrors() { py::register_exception_translator(Translate); }

}  // namespace gradwire::python
