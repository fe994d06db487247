// Values in a payload: writing and reading of tagged bytes.
#include "gradwire/value.h"

#include <cstring>
#include <limits>

#include "wire/cursor.h"

namespace gradwire {
namespace {

using wire::Append;
using wire::ThrowInvalid;

std::string Name(ValueTag tag) {
  switch (tag) {
    case ValueTag::kNone: return "None";
    case ValueTag::kTrue:
    case ValueTag::kFalse: return "a bool";
    case ValueTag::kInt: return "an int";
    case ValueTag::kFloat: return "a float";
    case ValueTag::kComplex: return "a complex number";
    case ValueTag::kString: return "a string";
    case ValueTag::kBytes: return "bytes";
    case ValueTag::kTensor: return "a tensor";
    case ValueTag::kParameter: return "a parameter";
    case ValueTag::kReference: return "a remote reference";
    case ValueTag::kTuple: return "a tuple";
    case ValueTag::kList: return "a list";
    case ValueTag::kDict: return "a dict";
    case ValueTag::kDevice: return "a device";
    case ValueTag::kPickle: return "a pickled object";
  }
  return "a value of unknown tag " + std::to_string(static_cast<unsigned char>(tag));
}

[[noreturn]] void ThrowUnexpected(const std::string& wanted, ValueTag found) {
  ThrowInvalid("expected " + wanted + ", got " + Name(found));
}

uint32_t Index(size_t size) {
  if (size > std::numeric_limits<uint32_t>::max()) ThrowInvalid("more than 4 Gi entries in one value");
  return static_cast<uint32_t>(size);
}

}  // namespace

void ValueWriter::PutNone() { PutTag(ValueTag::kNone); }
void ValueWriter::PutBool(bool value) { PutTag(value ? ValueTag::kTrue : ValueTag::kFalse); }
void ValueWriter::PutInt(int64_t value) { Append(payload_.bytes, ValueTag::kInt, value); }
void ValueWriter::PutDouble(double value) { Append(payload_.bytes, ValueTag::kFloat, value); }
void ValueWriter::PutComplex(double real, double imag) { Append(payload_.bytes, ValueTag::kComplex, real, imag); }

void ValueWriter::PutString(std::string_view text) {
  PutCounted(ValueTag::kString, text.size());
  payload_.bytes.append(text);
}

void ValueWriter::PutBytes(std::string_view bytes) {
  PutCounted(ValueTag::kBytes, bytes.size());
  payload_.bytes.append(bytes);
}

void ValueWriter::PutDevice(std::string_view device) {
  PutCounted(ValueTag::kDevice, device.size());
  payload_.bytes.append(device);
}

void ValueWriter::PutPickle(std::string_view pickle) {
  PutCounted(ValueTag::kPickle, pickle.size());
  payload_.bytes.append(pickle);
}

void ValueWriter::PutTensor(const at::Tensor& tensor, bool parameter) {
  if (!tensor.defined()) return PutNone();
  PutCounted(parameter ? ValueTag::kParameter : ValueTag::kTensor, payload_.tensors.size());
  payload_.tensors.push_back(tensor);
}

void ValueWriter::PutTensorAgain(size_t index, bool parameter) {
  PutCounted(parameter ? ValueTag::kParameter : ValueTag::kTensor, index);
}

void ValueWriter::PutReference(std::shared_ptr<Reference> reference) {
  PutCounted(ValueTag::kReference, payload_.references.size());
  payload_.references.push_back(std::move(reference));
}

void ValueWriter::BeginTuple(size_t count) { PutCounted(ValueTag::kTuple, count); }
void ValueWriter::BeginList(size_t count) { PutCounted(ValueTag::kList, count); }
void ValueWriter::BeginDict(size_t count) { PutCounted(ValueTag::kDict, count); }

void ValueWriter::PutCounted(ValueTag tag, size_t count) { Append(payload_.bytes, tag, Index(count)); }

ValueTag ValueReader::Peek() const {
  if (AtEnd()) ThrowInvalid("expected a value, got nothing");
  return static_cast<ValueTag>(payload_.bytes[at_]);
}

void ValueReader::Expect(ValueTag tag) {
  const ValueTag found = Peek();
  if (found != tag) ThrowUnexpected(Name(tag), found);
  ++at_;
}

template <class T>
T ValueReader::Raw() {
  if (payload_.bytes.size() - at_ < sizeof(T)) ThrowInvalid("value ends too early");
  T field;
  std::memcpy(&field, payload_.bytes.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return field;
}

std::string_view ValueReader::Counted(ValueTag tag) {
  Expect(tag);
  const auto size = Raw<uint32_t>();
  if (payload_.bytes.size() - at_ < size) ThrowInvalid("value ends too early");
  const std::string_view bytes(payload_.bytes.data() + at_, size);
  at_ += size;
  return bytes;
}

size_t ValueReader::Begin(ValueTag tag) {
  Expect(tag);
  const size_t count = Raw<uint32_t>();
  const size_t least_bytes = tag == ValueTag::kDict ? 2 : 1;
  if (count > (payload_.bytes.size() - at_) / least_bytes) {
    ThrowInvalid(Name(tag) + " of " + std::to_string(count) + " entries ends too early");
  }
  if (depth_ == kMaxDepth) ThrowInvalid("more than " + std::to_string(kMaxDepth) + " containers inside each other");
  ++depth_;
  return count;
}

void ValueReader::GetNone() { Expect(ValueTag::kNone); }

bool ValueReader::GetBool() {
  const ValueTag found = Peek();
  if (found != ValueTag::kTrue && found != ValueTag::kFalse) ThrowUnexpected("a bool", found);
  ++at_;
  return found == ValueTag::kTrue;
}

int64_t ValueReader::GetInt() {
  Expect(ValueTag::kInt);
  return Raw<int64_t>();
}

double ValueReader::GetDouble() {
  const ValueTag found = Peek();
  if (found == ValueTag::kInt) return static_cast<double>(GetInt());
  Expect(ValueTag::kFloat);
  return Raw<double>();
}

std::pair<double, double> ValueReader::GetComplex() {
  Expect(ValueTag::kComplex);
  const auto real = Raw<double>();
  return {real, Raw<double>()};
}

std::string_view ValueReader::GetString() { return Counted(ValueTag::kString); }
std::string_view ValueReader::GetBytes() { return Counted(ValueTag::kBytes); }
std::string_view ValueReader::GetDevice() { return Counted(ValueTag::kDevice); }
std::string_view ValueReader::GetPickle() { return Counted(ValueTag::kPickle); }

at::Tensor ValueReader::GetTensor() {
  const ValueTag found = Peek();
  if (found != ValueTag::kTensor && found != ValueTag::kParameter && found != ValueTag::kNone) {
    ThrowUnexpected("a tensor", found);
  }
  ++at_;
  if (found == ValueTag::kNone) return {};
  const auto index = Raw<uint32_t>();
  if (index >= payload_.tensors.size()) {
    ThrowInvalid("tensor " + std::to_string(index) + " of " + std::to_string(payload_.tensors.size()) + " is named");
  }
  return payload_.tensors[index];
}

const std::shared_ptr<Reference>& ValueReader::GetReference() {
  Expect(ValueTag::kReference);
  const auto index = Raw<uint32_t>();
  if (index >= payload_.references.size()) {
    ThrowInvalid("remote reference " + std::to_string(index) + " of " + std::to_string(payload_.references.size()) +
                 " is named");
  }
  return payload_.references[index];
}

size_t ValueReader::BeginTuple() { return Begin(ValueTag::kTuple); }
size_t ValueReader::BeginList() { return Begin(ValueTag::kList); }
size_t ValueReader::BeginDict() { return Begin(ValueTag::kDict); }

size_t ValueReader::BeginSequence() {
  const ValueTag found = Peek();
  if (found != ValueTag::kTuple && found != ValueTag::kList) ThrowUnexpected("a tuple or a list", found);
  return Begin(found);
}

void ValueReader::End() { --depth_; }

namespace detail {

void ThrowOutOfRange(int64_t value) {
  ThrowInvalid(std::to_string(value) + " is out of the range of the wanted integer type");
}

size_t ReadTupleOf(ValueReader& reader, size_t wanted) {
  const size_t found = reader.BeginSequence();
  if (found != wanted) {
    ThrowInvalid("expected " + std::to_string(wanted) + " values, got " + std::to_string(found));
  }
  return found;
}

void RethrowAbout(const std::string& what, const Error& error) {
  Failure failure = error.failure();
  failure.text = what + ": " + failure.text;
  throw Error(std::move(failure));
}

}  // namespace detail
}  // namespace gradwire
