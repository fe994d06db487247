// Python values into payloads. Plain values become tagged bytes; what else there is, all of it, becomes one pickle.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gil.h"
#include "gradwire/payload.h"
#include "gradwire/value.h"

namespace gradwire::python {

// Exact types only: None, bool, int of 64 bits, float, complex, str, bytes, tuple, list, dict, Tensor, Parameter, RRef.
// With the interpreter lock.
class ValueEncoder {
 public:
  explicit ValueEncoder(Payload& payload) : payload_(payload), writer_(payload) {}

  // Appends `value`. False, and the payload is as it was, when the value needs pickle: another type, too deep, or a
  // container that occurs twice (tags cannot say that two are one).
  bool TryPut(PyObject* value);

  // Appends the pickle of `value`. Throws what pickling raises.
  void PutPickle(py::handle value);

  ValueWriter& writer() { return writer_; }

 private:
  static constexpr int kMaxDepth = 100;  // the reader allows twice as many

  bool Put(PyObject* value, int depth);
  bool PutContainer(PyObject* value, int depth);
  bool PutItems(PyObject* sequence, Py_ssize_t count, int depth);
  bool PutDict(PyObject* dict, int depth);
  bool PutOther(PyObject* value);
  void PutTensor(PyObject* value);
  bool IsFirst(PyObject* container);

  Payload& payload_;
  ValueWriter writer_;
  std::vector<PyObject*> seen_;
  std::unordered_set<PyObject*> seen_many_;
  std::unordered_map<const c10::TensorImpl*, size_t> places_;  // in the table; empty while it has few
};

// One whole value as a payload. Throws what pickling raises. With the lock.
Payload EncodePython(py::handle value);

}  // namespace gradwire::python
