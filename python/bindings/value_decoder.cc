#include "value_decoder.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <string_view>

#include "local_value.h"
#include "python_parts.h"
#include "reference.h"

namespace gradwire::python {
namespace {

py::object Own(PyObject* object) {
  if (!object) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::object Text(std::string_view text) {
  return Own(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

py::object WrapTensor(const at::Tensor& tensor, bool parameter) {
  if (!tensor.defined()) return py::none();
  return Own(parameter ? THPVariable_Wrap(tensor, reinterpret_cast<PyTypeObject*>(ParameterClass))
                       : THPVariable_Wrap(tensor));
}

py::list AllTensors(const Payload& payload) {
  py::list tensors(payload.tensors.size());
  for (size_t i = 0; i < payload.tensors.size(); ++i) tensors[i] = WrapTensor(payload.tensors[i], false);
  return tensors;
}

py::object WrapReference(const std::shared_ptr<Reference>& reference) {
  auto handle = std::dynamic_pointer_cast<RRefHandle>(reference);
  if (!handle) throw Error(ErrorCode::kInvalid, "a message names something that is no RRef");
  return MakeRRef(std::move(handle));
}

}  // namespace

py::object ValueDecoder::Get() {
  switch (reader_.Peek()) {
    case ValueTag::kNone: reader_.GetNone(); return py::none();
    case ValueTag::kTrue:
    case ValueTag::kFalse: return py::bool_(reader_.GetBool());
    case ValueTag::kInt: return Own(PyLong_FromLongLong(reader_.GetInt()));
    case ValueTag::kFloat: return Own(PyFloat_FromDouble(reader_.GetDouble()));
    case ValueTag::kComplex: {
      const auto [real, imaginary] = reader_.GetComplex();
      return Own(PyComplex_FromDoubles(real, imaginary));
    }
    case ValueTag::kString: return Text(reader_.GetString());
    case ValueTag::kBytes: {
      const std::string_view bytes = reader_.GetBytes();
      return Own(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    case ValueTag::kTensor: return WrapTensor(reader_.GetTensor(), false);
    case ValueTag::kParameter: return WrapTensor(reader_.GetTensor(), true);
    case ValueTag::kReference: return WrapReference(reader_.GetReference());
    case ValueTag::kTuple: return GetTuple();
    case ValueTag::kList: return GetList();
    case ValueTag::kDict: return GetDict();
    case ValueTag::kDevice: return Own(THPDevice_New(at::Device(std::string(reader_.GetDevice()))));
    case ValueTag::kPickle: return GetPickle();
  }
  throw Error(ErrorCode::kInvalid, "a message holds a value of an unknown kind");
}

py::object ValueDecoder::GetTuple() {
  const size_t count = reader_.BeginTuple();
  py::object tuple = Own(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), Get().release().ptr());
  }
  reader_.End();
  return tuple;
}

py::object ValueDecoder::GetList() {
  const size_t count = reader_.BeginList();
  py::object list = Own(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), Get().release().ptr());
  }
  reader_.End();
  return list;
}

py::object ValueDecoder::GetDict() {
  const size_t count = reader_.BeginDict();
  py::object dict = Own(PyDict_New());
  for (size_t i = 0; i < count; ++i) {
    const py::object key = Get();
    const py::object item = Get();
    if (PyDict_SetItem(dict.ptr(), key.ptr(), item.ptr()) != 0) throw py::error_already_set();
  }
  reader_.End();
  return dict;
}

py::object ValueDecoder::GetPickle() {
  const std::string_view pickle = reader_.GetPickle();
  py::list references(payload_.references.size());
  for (size_t i = 0; i < payload_.references.size(); ++i) references[i] = WrapReference(payload_.references[i]);
  const auto view = py::memoryview::from_memory(pickle.data(), static_cast<py::ssize_t>(pickle.size()));
  return Parts().loads(view, AllTensors(payload_), references);
}

py::object DecodePython(const Payload& payload) {
  if (payload.local) {
    const auto* local = dynamic_cast<const LocalValue*>(payload.local.get());
    if (!local) throw Error(ErrorCode::kInvalid, "the value belongs to C++ and cannot be seen from Python");
    return py::reinterpret_borrow<py::object>(local->get());
  }
  return ValueDecoder(payload).Get();
}

}  // namespace gradwire::python
