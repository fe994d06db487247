// Errors between Python and C++.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "gil.h"
#include "gradwire/error.h"

namespace gradwire::python {

// An exception of Python as a C++ one that can be kept in a future and rethrown any number of times, on any thread.
// py::error_already_set cannot: its second restore() aborts.
class KeptException : public std::exception {
 public:
  explicit KeptException(py::object exception) : exception_(std::make_shared<SharedObject>(std::move(exception))) {}

  const char* what() const noexcept override { return "an exception of Python"; }
  py::handle get() const { return exception_->get(); }  // with the lock
  py::object Fresh() const;  // a copy to raise, which does not write frames into the kept one; with the lock

 private:
  std::shared_ptr<SharedObject> exception_;
};

// What a user's function has raised: type, text, traceback and pickle. With a `heading` the traceback goes to
// sys.stderr too, below it. With the lock. Never throws: somebody waits for what has failed.
Failure DescribeError(const py::error_already_set& error, const std::string& heading = {});

// The same for an exception of Python that passed through libtorch or C++; nothing for others. Takes the lock.
std::optional<Failure> DescribeCaught(const std::exception_ptr& caught);

// What was raised `where`, as futures keep it: without its frames, which would keep a user's locals alive. With the
// lock. Never throws.
KeptException KeepError(const py::error_already_set& error, const std::string& where);

// The failure with `where` in its text ("in the call of ..."). What a function has raised keeps its own text, and says
// where in its traceback; the call layer's texts name the call themselves.
Failure Placed(Failure failure, const std::string& where);

// The Python exception for a failure. With the lock.
py::object ToException(const Failure& failure);
[[noreturn]] void RaiseFailure(const Failure& failure);
// The same for a failed backward pass: the exception's text says on which worker, and it is a RuntimeError too.
[[noreturn]] void RaisePassFailure(const Failure& failure);

// How Error and KeptException are raised by every function of Python that throws them, torch's futures included.
void RegisterErrors();

}  // namespace gradwire::python
