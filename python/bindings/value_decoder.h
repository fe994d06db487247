// Payloads into Python values.
#pragma once

#include "gil.h"
#include "gradwire/payload.h"
#include "gradwire/value.h"

namespace gradwire::python {

// With the interpreter lock. Throws Error for bad bytes and what unpickling raises.
class ValueDecoder {
 public:
  explicit ValueDecoder(const Payload& payload) : payload_(payload), reader_(payload) {}

  py::object Get();
  ValueReader& reader() { return reader_; }

 private:
  py::object GetTuple();
  py::object GetList();
  py::object GetDict();
  py::object GetPickle();

  const Payload& payload_;
  ValueReader reader_;
};

// The one value of a payload; of a local object, the object itself. With the lock.
py::object DecodePython(const Payload& payload);

}  // namespace gradwire::python
