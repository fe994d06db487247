// LocalValue: a Python object as a payload that stays in its process.
#pragma once

#include <memory>

#include "gil.h"
#include "gradwire/payload.h"

namespace gradwire::python {

class LocalValue final : public LocalObject {
 public:
  explicit LocalValue(py::object value) : value_(std::move(value)) {}

  Payload Encode() const override;
  py::handle get() const { return value_.get(); }

 private:
  SharedObject value_;
};

inline Payload KeepLocal(py::object value) {
  Payload payload;
  payload.local = std::make_shared<LocalValue>(std::move(value));
  return payload;
}

}  // namespace gradwire::python
