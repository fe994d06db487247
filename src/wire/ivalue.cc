#include "wire/ivalue.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <utility>
#include <vector>

#include "gradwire/ivalue.h"
#include "wire/cursor.h"

namespace gradwire::wire {
namespace {

void Write(ValueWriter& writer, const c10::IValue& value, int depth);

template <class Values>
void WriteAll(ValueWriter& writer, const Values& values, int depth) {
  for (const c10::IValue& value : values) Write(writer, value, depth);
}

void WriteContainer(ValueWriter& writer, const c10::IValue& value, int depth) {
  if (depth > ValueReader::kMaxDepth) {
    ThrowInvalid("more than " + std::to_string(ValueReader::kMaxDepth) + " containers inside each other");
  }
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    writer.BeginTuple(elements.size());
    WriteAll(writer, elements, depth);
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> elements = value.toListRef();
    writer.BeginList(elements.size());
    WriteAll(writer, elements, depth);
  } else {
    const auto dict = value.toGenericDict();
    writer.BeginDict(dict.size());
    for (const auto& entry : dict) {
      Write(writer, entry.key(), depth);
      Write(writer, entry.value(), depth);
    }
  }
}

void Write(ValueWriter& writer, const c10::IValue& value, int depth) {
  if (value.isTensor()) return writer.PutTensor(value.toTensor());
  if (value.isNone()) return writer.PutNone();
  if (value.isBool()) return writer.PutBool(value.toBool());
  if (value.isInt()) return writer.PutInt(value.toInt());
  if (value.isDouble()) return writer.PutDouble(value.toDouble());
  if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    return writer.PutComplex(number.real(), number.imag());
  }
  if (value.isString()) return writer.PutString(value.toStringRef());
  if (value.isDevice()) return writer.PutDevice(value.toDevice().str());
  if (value.isTuple() || value.isList() || value.isGenericDict()) return WriteContainer(writer, value, depth + 1);
  ThrowInvalid("a value of kind " + value.tagKind() + " cannot travel");
}

[[noreturn]] void ThrowNoValueOf(const c10::Type& type) {
  ThrowInvalid("a value of type " + type.str() + " cannot travel");
}

c10::IValue ReadNumber(ValueReader& reader) {
  switch (reader.Peek()) {
    case ValueTag::kInt: return reader.GetInt();
    case ValueTag::kTrue:
    case ValueTag::kFalse: return reader.GetBool();
    case ValueTag::kComplex: {
      const auto [real, imag] = reader.GetComplex();
      return c10::complex<double>(real, imag);
    }
    default: return reader.GetDouble();
  }
}

c10::IValue ReadComplex(ValueReader& reader) {
  if (reader.Peek() != ValueTag::kComplex) return c10::complex<double>(reader.GetDouble(), 0);
  return ReadNumber(reader);
}

c10::IValue ReadList(ValueReader& reader, const c10::TypePtr& element) {
  // A list of symbolic integers holds plain ones.
  const bool symbolic = element->kind() == c10::TypeKind::SymIntType;
  c10::impl::GenericList list(symbolic ? c10::TypePtr(c10::IntType::get()) : element);
  for (size_t left = reader.BeginSequence(); left > 0; --left) list.push_back(ReadIValue(reader, *element));
  reader.End();
  return list;
}

c10::IValue ReadDict(ValueReader& reader, const c10::TypePtr& key_type, const c10::TypePtr& value_type) {
  c10::impl::GenericDict dict(key_type, value_type);
  for (size_t left = reader.BeginDict(); left > 0; --left) {
    c10::IValue key = ReadIValue(reader, *key_type);
    dict.insert_or_assign(std::move(key), ReadIValue(reader, *value_type));
  }
  reader.End();
  return dict;
}

c10::IValue ReadTuple(ValueReader& reader, const c10::TupleType& type) {
  detail::ReadTupleOf(reader, type.elements().size());
  std::vector<c10::IValue> elements;
  for (const c10::TypePtr& element : type.elements()) elements.push_back(ReadIValue(reader, *element));
  reader.End();
  if (!type.name()) return c10::ivalue::Tuple::create(std::move(elements));
  return c10::ivalue::Tuple::createNamed(
      std::move(elements), c10::TypePtr(std::const_pointer_cast<c10::TupleType>(type.expect<c10::TupleType>())));
}

c10::IValue ReadByTag(ValueReader& reader) {
  switch (reader.Peek()) {
    case ValueTag::kNone: reader.GetNone(); return {};
    case ValueTag::kString: return std::string(reader.GetString());
    case ValueTag::kDevice: return c10::Device(std::string(reader.GetDevice()));
    case ValueTag::kTensor:
    case ValueTag::kParameter: return reader.GetTensor();
    case ValueTag::kList: return ReadList(reader, c10::AnyType::get());
    case ValueTag::kDict: return ReadDict(reader, c10::AnyType::get(), c10::AnyType::get());
    case ValueTag::kTuple: {
      std::vector<c10::IValue> elements;
      for (size_t left = reader.BeginTuple(); left > 0; --left) elements.push_back(ReadByTag(reader));
      reader.End();
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    default: return ReadNumber(reader);
  }
}

c10::IValue ReadByType(ValueReader& reader, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType: return reader.GetTensor();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType: return reader.GetInt();
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType: return reader.GetDouble();
    case c10::TypeKind::ComplexType: return ReadComplex(reader);
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType: return reader.GetBool();
    case c10::TypeKind::NumberType: return ReadNumber(reader);
    case c10::TypeKind::StringType: return std::string(reader.GetString());
    case c10::TypeKind::DeviceObjType: return c10::Device(std::string(reader.GetDevice()));
    case c10::TypeKind::NoneType: reader.GetNone(); return {};
    case c10::TypeKind::ListType: return ReadList(reader, type.castRaw<c10::ListType>()->getElementType());
    case c10::TypeKind::TupleType: return ReadTuple(reader, *type.castRaw<c10::TupleType>());
    case c10::TypeKind::DictType: {
      const auto* dict = type.castRaw<c10::DictType>();
      return ReadDict(reader, dict->getKeyType(), dict->getValueType());
    }
    case c10::TypeKind::OptionalType:
      if (reader.Peek() == ValueTag::kNone) {
        reader.GetNone();
        return {};
      }
      return ReadIValue(reader, *type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::AnyType: return ReadByTag(reader);
    default: ThrowNoValueOf(type);
  }
}

}  // namespace

void WriteIValue(ValueWriter& writer, const c10::IValue& value) { Write(writer, value, 0); }

c10::IValue ReadIValue(ValueReader& reader, const c10::Type& type) {
  try {
    return ReadByType(reader, type);
  } catch (const c10::Error& error) {  // of a device's text, or a key that cannot be one
    ThrowInvalid(error.what_without_backtrace());
  }
}

}  // namespace gradwire::wire

namespace gradwire {

Payload EncodeIValue(const c10::IValue& value) {
  Payload payload;
  ValueWriter writer(payload);
  wire::WriteIValue(writer, value);
  return payload;
}

c10::IValue DecodeIValue(const Payload& payload, const c10::Type& type) {
  ValueReader reader(payload);
  return wire::ReadIValue(reader, type);
}

}  // namespace gradwire
