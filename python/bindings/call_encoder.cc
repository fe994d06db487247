#include "call_encoder.h"

#include <utility>

#include "function_name.h"
#include "operator_call.h"
#include "script_call.h"
#include "value_decoder.h"
#include "value_encoder.h"

namespace gradwire::python {
namespace {

py::tuple Arguments(py::handle args) {
  if (args.is_none()) return py::tuple();
  if (PyTuple_Check(args.ptr())) return py::reinterpret_borrow<py::tuple>(args);
  if (PyList_Check(args.ptr())) return py::reinterpret_steal<py::tuple>(PyList_AsTuple(args.ptr()));
  throw py::type_error("args must be a tuple or a list, not " + std::string(Py_TYPE(args.ptr())->tp_name));
}

py::dict KeywordArguments(py::handle kwargs) {
  if (kwargs.is_none()) return py::dict();
  if (PyDict_Check(kwargs.ptr())) return py::reinterpret_borrow<py::dict>(kwargs);
  throw py::type_error("kwargs must be a dict, not " + std::string(Py_TYPE(kwargs.ptr())->tp_name));
}

EncodedCall EncodeRegistered(std::string name, const py::tuple& args, const py::dict& kwargs) {
  if (kwargs.size() > 0) {
    throw py::type_error("the registered function '" + name +
                         "' takes no keyword arguments: C++ has no names for them");
  }
  Payload payload;
  if (!ValueEncoder(payload).TryPut(args.ptr())) {
    throw py::type_error("the registered function '" + name +
                         "' takes plain values: None, bool, int, float, complex, str, bytes, tensors, RRefs, and "
                         "tuples, lists and dicts of them, each container once");
  }
  return {std::move(name), std::move(payload)};
}

EncodedCall EncodePythonCall(py::handle function, const py::tuple& args, const py::dict& kwargs) {
  Payload payload;
  const std::optional<FunctionName> name = NameOf(function.ptr());
  if (!name) {
    ValueEncoder(payload).PutPickle(py::make_tuple(function, args, kwargs));
    return {kPythonFunction, std::move(payload)};
  }
  const auto put_name = [&](ValueEncoder& encoder) {
    encoder.writer().BeginTuple(2);
    encoder.TryPut(name->module.ptr());
    encoder.TryPut(name->qualified.ptr());
  };
  {
    ValueEncoder encoder(payload);
    encoder.writer().BeginTuple(3);
    put_name(encoder);
    if (encoder.TryPut(args.ptr()) && encoder.TryPut(kwargs.ptr())) return {kPythonFunction, std::move(payload)};
  }
  payload = Payload{};
  ValueEncoder encoder(payload);
  encoder.writer().BeginTuple(2);
  put_name(encoder);
  encoder.PutPickle(py::make_tuple(args, kwargs));
  return {kPythonFunction, std::move(payload)};
}

py::tuple TupleOf(const py::object& value, size_t size) {
  if (!PyTuple_Check(value.ptr()) || static_cast<size_t>(PyTuple_GET_SIZE(value.ptr())) != size) {
    throw Error(ErrorCode::kInvalid, "a call of a Python function is malformed");
  }
  return py::reinterpret_borrow<py::tuple>(value);
}

DecodedCall MakeCall(py::object function, const py::object& args, const py::object& kwargs) {
  if (!PyTuple_Check(args.ptr()) || !PyDict_Check(kwargs.ptr())) {
    throw Error(ErrorCode::kInvalid, "a call of a Python function is malformed");
  }
  return {std::move(function), py::reinterpret_borrow<py::tuple>(args), py::reinterpret_borrow<py::dict>(kwargs)};
}

}  // namespace

EncodedCall EncodeCall(py::handle function, py::handle args, py::handle kwargs) {
  const py::tuple positional = Arguments(args);
  const py::dict named = KeywordArguments(kwargs);
  if (PyUnicode_Check(function.ptr())) return EncodeRegistered(py::cast<std::string>(function), positional, named);
  if (auto call = EncodeOperator(function.ptr(), positional, named)) {
    return {std::move(call->function), std::move(call->args), std::move(call->result)};
  }
  if (auto call = EncodeScript(function, positional, named)) return std::move(*call);
  if (!PyCallable_Check(function.ptr())) {
    throw py::type_error(std::string(py::repr(function)) +
                         " is not callable: what is called is a function, or the name of a registered one");
  }
  return EncodePythonCall(function, positional, named);
}

DecodedCall DecodeCall(const Payload& payload) {
  ValueDecoder decoder(payload);
  if (decoder.reader().Peek() == ValueTag::kPickle) {
    const py::tuple whole = TupleOf(decoder.Get(), 3);
    return MakeCall(whole[0], whole[1], whole[2]);
  }
  const size_t parts = decoder.reader().BeginTuple();
  const py::tuple name = TupleOf(decoder.Get(), 2);
  py::object function = ResolveFunction(name[0], name[1]);
  if (parts == 2) {
    const py::tuple rest = TupleOf(decoder.Get(), 2);
    return MakeCall(std::move(function), rest[0], rest[1]);
  }
  const py::object args = decoder.Get();
  return MakeCall(std::move(function), args, decoder.Get());
}

}  // namespace gradwire::python
