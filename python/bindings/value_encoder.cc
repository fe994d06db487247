#include "value_encoder.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>

#include "local_value.h"
#include "python_parts.h"
#include "reference.h"
#include "release.h"

namespace gradwire::python {

bool ValueEncoder::TryPut(PyObject* value) {
  const size_t bytes = payload_.bytes.size();
  const size_t tensors = payload_.tensors.size();
  const size_t references = payload_.references.size();
  if (Put(value, 0)) return true;
  payload_.bytes.resize(bytes);
  payload_.tensors.resize(tensors);
  places_.clear();
  payload_.references.resize(references);
  return false;
}

bool ValueEncoder::Put(PyObject* value, int depth) {
  if (THPVariable_CheckExact(value)) {
    PutTensor(value);
  } else if (value == Py_None) {
    writer_.PutNone();
  } else if (PyBool_Check(value)) {
    writer_.PutBool(value == Py_True);
  } else if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return false;
    writer_.PutInt(number);
  } else if (PyFloat_CheckExact(value)) {
    writer_.PutDouble(PyFloat_AS_DOUBLE(value));
  } else if (PyUnicode_CheckExact(value)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &size);
    if (!text) {
      PyErr_Clear();  // lone surrogates: pickle can
      return false;
    }
    writer_.PutString(std::string_view(text, static_cast<size_t>(size)));
  } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value) || PyDict_CheckExact(value)) {
    return PutContainer(value, depth);
  } else {
    return PutOther(value);
  }
  return true;
}

// A tensor that occurs twice is one object on arrival, too.
void ValueEncoder::PutTensor(PyObject* value) {
  constexpr size_t kFew = 8;
  const bool parameter = reinterpret_cast<PyObject*>(Py_TYPE(value)) == ParameterClass;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  ReleaseWithoutLock(tensor);
  std::vector<at::Tensor>& table = payload_.tensors;
  if (table.size() < kFew) {
    const auto same = [&](const at::Tensor& other) { return other.is_same(tensor); };
    const auto found = std::find_if(table.begin(), table.end(), same);
    if (found != table.end()) {
      return writer_.PutTensorAgain(static_cast<size_t>(found - table.begin()), parameter);
    }
    return writer_.PutTensor(tensor, parameter);
  }
  if (places_.empty()) {
    for (size_t i = 0; i < table.size(); ++i) places_.emplace(table[i].unsafeGetTensorImpl(), i);
  }
  const auto [place, is_new] = places_.emplace(tensor.unsafeGetTensorImpl(), table.size());
  is_new ? writer_.PutTensor(tensor, parameter) : writer_.PutTensorAgain(place->second, parameter);
}

bool ValueEncoder::PutOther(PyObject* value) {
  if (PyBytes_CheckExact(value)) {
    writer_.PutBytes(std::string_view(PyBytes_AS_STRING(value), static_cast<size_t>(PyBytes_GET_SIZE(value))));
  } else if (PyComplex_CheckExact(value)) {
    writer_.PutComplex(PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value));
  } else if (auto handle = HandleOf(value)) {
    writer_.PutReference(std::move(handle));
  } else {
    return false;
  }
  return true;
}

bool ValueEncoder::PutContainer(PyObject* value, int depth) {
  if (depth >= kMaxDepth) return false;
  if (PyTuple_CheckExact(value)) {
    const Py_ssize_t count = PyTuple_GET_SIZE(value);
    if (count > 0 && !IsFirst(value)) return false;
    writer_.BeginTuple(static_cast<size_t>(count));
    return PutItems(value, count, depth);
  }
  if (!IsFirst(value)) return false;
  if (PyDict_CheckExact(value)) return PutDict(value, depth);
  const Py_ssize_t count = PyList_GET_SIZE(value);
  writer_.BeginList(static_cast<size_t>(count));
  return PutItems(value, count, depth);
}

bool ValueEncoder::PutItems(PyObject* sequence, Py_ssize_t count, int depth) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!Put(PySequence_Fast_GET_ITEM(sequence, i), depth + 1)) return false;
  }
  return true;
}

bool ValueEncoder::PutDict(PyObject* dict, int depth) {
  writer_.BeginDict(static_cast<size_t>(PyDict_GET_SIZE(dict)));
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &item);) {
    if (!Put(key, depth + 1) || !Put(item, depth + 1)) return false;
  }
  return true;
}

bool ValueEncoder::IsFirst(PyObject* container) {
  constexpr size_t kFew = 16;
  if (seen_many_.empty()) {
    if (std::find(seen_.begin(), seen_.end(), container) != seen_.end()) return false;
    seen_.push_back(container);
    if (seen_.size() == kFew) seen_many_.insert(seen_.begin(), seen_.end());
    return true;
  }
  return seen_many_.insert(container).second;
}

void ValueEncoder::PutPickle(py::handle value) {
  const py::tuple parts = Parts().dumps(value, payload_.tensors.size(), payload_.references.size());
  writer_.PutPickle(py::cast<std::string_view>(parts[0]));
  for (const py::handle tensor : py::cast<py::list>(parts[1])) {
    payload_.tensors.push_back(THPVariable_Unpack(tensor.ptr()));
    ReleaseWithoutLock(payload_.tensors.back());
  }
  for (const py::handle rref : py::cast<py::list>(parts[2])) payload_.references.push_back(HandleOf(rref.ptr()));
}

Payload EncodePython(py::handle value) {
  Payload payload;
  ValueEncoder encoder(payload);
  if (!encoder.TryPut(value.ptr())) encoder.PutPickle(value);
  return payload;
}

}  // namespace gradwire::python
