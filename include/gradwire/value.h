// Values in a payload: tagged bytes beside the tensor and reference tables, the same for C++ and Python (docs/wire.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/error.h"
#include "gradwire/export.h"
#include "gradwire/payload.h"

namespace gradwire {

// The first byte of each value.
enum class ValueTag : char {
  kNone = 'N',
  kTrue = '1',
  kFalse = '0',
  kInt = 'i',        // int64
  kFloat = 'f',      // IEEE double
  kComplex = 'c',    // two doubles
  kString = 's',     // u32 length, UTF-8
  kBytes = 'b',      // u32 length
  kTensor = 't',     // u32 index in the tensor table
  kParameter = 'p',  // as kTensor; an nn.Parameter for Python
  kReference = 'r',  // u32 index in the reference table
  kTuple = 'T',      // u32 count, values
  kList = 'L',       // u32 count, values
  kDict = 'D',       // u32 count, pairs of values
  kDevice = 'd',     // u32 length, "cpu", "cuda:1"
  kPickle = 'P',     // u32 length, a pickle that names the tables' entries; needs Python
};

// Appends values to a payload. Not thread-safe.
class GRADWIRE_API ValueWriter {
 public:
  explicit ValueWriter(Payload& payload) : payload_(payload) {}

  void PutNone();
  void PutBool(bool value);
  void PutInt(int64_t value);
  void PutDouble(double value);
  void PutComplex(double real, double imag);
  void PutString(std::string_view text);
  void PutBytes(std::string_view bytes);
  void PutDevice(std::string_view device);
  void PutPickle(std::string_view pickle);
  void PutTensor(const at::Tensor& tensor, bool parameter = false);  // an undefined tensor travels as None
  void PutTensorAgain(size_t index, bool parameter = false);         // one that is in the table already
  void PutReference(std::shared_ptr<Reference> reference);
  // The counted number of values (of a dict: key, value, key, value, ...) must follow.
  void BeginTuple(size_t count);
  void BeginList(size_t count);
  void BeginDict(size_t count);

  Payload& payload() { return payload_; }

 private:
  void PutTag(ValueTag tag) { payload_.bytes.push_back(static_cast<char>(tag)); }
  void PutCounted(ValueTag tag, size_t count);

  Payload& payload_;
};

// Reads values from a payload that a peer sent: each step is checked, and Error(kInvalid) is thrown for bytes that end
// too early, an index outside a table, or another tag than asked for. Not thread-safe; the payload must outlive it.
class GRADWIRE_API ValueReader {
 public:
  explicit ValueReader(const Payload& payload) : payload_(payload) {}

  ValueTag Peek() const;
  bool AtEnd() const { return at_ == payload_.bytes.size(); }

  void GetNone();
  bool GetBool();
  int64_t GetInt();
  double GetDouble();  // takes an int too
  std::pair<double, double> GetComplex();
  std::string_view GetString();  // views live as long as the payload
  std::string_view GetBytes();
  std::string_view GetDevice();
  std::string_view GetPickle();
  at::Tensor GetTensor();  // kTensor, kParameter, or kNone for an undefined tensor
  const std::shared_ptr<Reference>& GetReference();
  size_t BeginTuple();  // the count; at most kMaxDepth containers inside each other
  size_t BeginList();
  size_t BeginDict();
  // BeginTuple or BeginList, whichever is there.
  size_t BeginSequence();
  void End();  // closes the innermost container

  static constexpr int kMaxDepth = 200;

 private:
  void Expect(ValueTag tag);
  template <class T>
  T Raw();
  std::string_view Counted(ValueTag tag);
  size_t Begin(ValueTag tag);

  const Payload& payload_;
  size_t at_ = 0;
  int depth_ = 0;
};

// How a C++ type travels. Specialise it for a type of your own: static void Write(ValueWriter&, const T&) and
// static T Read(ValueReader&).
template <class T>
struct Codec;

template <class T>
concept Travels = requires(ValueWriter& writer, ValueReader& reader, const T& value) {
  Codec<T>::Write(writer, value);
  { Codec<T>::Read(reader) } -> std::same_as<T>;
};

template <>
struct Codec<at::Tensor> {
  static void Write(ValueWriter& w, const at::Tensor& v) { w.PutTensor(v); }
  static at::Tensor Read(ValueReader& r) { return r.GetTensor(); }
};

template <>
struct Codec<bool> {
  static void Write(ValueWriter& w, bool v) { w.PutBool(v); }
  static bool Read(ValueReader& r) { return r.GetBool(); }
};

namespace detail {
[[noreturn]] GRADWIRE_API void ThrowOutOfRange(int64_t value);
}

template <std::integral T>
struct Codec<T> {
  static void Write(ValueWriter& w, T v) { w.PutInt(static_cast<int64_t>(v)); }
  static T Read(ValueReader& r) {
    const int64_t v = r.GetInt();
    if (!std::in_range<T>(v)) detail::ThrowOutOfRange(v);
    return static_cast<T>(v);
  }
};

template <std::floating_point T>
struct Codec<T> {
  static void Write(ValueWriter& w, T v) { w.PutDouble(v); }
  static T Read(ValueReader& r) { return static_cast<T>(r.GetDouble()); }
};

template <>
struct Codec<std::string> {
  static void Write(ValueWriter& w, const std::string& v) { w.PutString(v); }
  static std::string Read(ValueReader& r) { return std::string(r.GetString()); }
};

template <class T>
struct Codec<std::optional<T>> {
  static void Write(ValueWriter& w, const std::optional<T>& v) { v ? Codec<T>::Write(w, *v) : w.PutNone(); }
  static std::optional<T> Read(ValueReader& r) {
    if (r.Peek() != ValueTag::kNone) return Codec<T>::Read(r);
    r.GetNone();
    return std::nullopt;
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static void Write(ValueWriter& w, const std::vector<T>& v) {
    w.BeginList(v.size());
    for (const auto& item : v) Codec<T>::Write(w, item);
  }
  static std::vector<T> Read(ValueReader& r) {
    std::vector<T> out;
    for (size_t left = r.BeginSequence(); left > 0; --left) out.push_back(Codec<T>::Read(r));
    r.End();
    return out;
  }
};

template <class K, class V>
struct Codec<std::map<K, V>> {
  static void Write(ValueWriter& w, const std::map<K, V>& v) {
    w.BeginDict(v.size());
    for (const auto& [key, value] : v) Codec<K>::Write(w, key), Codec<V>::Write(w, value);
  }
  static std::map<K, V> Read(ValueReader& r) {
    std::map<K, V> out;
    for (size_t left = r.BeginDict(); left > 0; --left) {
      K key = Codec<K>::Read(r);
      out.insert_or_assign(std::move(key), Codec<V>::Read(r));
    }
    r.End();
    return out;
  }
};

namespace detail {
GRADWIRE_API size_t ReadTupleOf(ValueReader& reader, size_t wanted);  // throws unless the count is `wanted`
}

template <class... T>
struct Codec<std::tuple<T...>> {
  static void Write(ValueWriter& w, const std::tuple<T...>& v) {
    w.BeginTuple(sizeof...(T));
    std::apply([&](const T&... item) { (Codec<T>::Write(w, item), ...); }, v);
  }
  static std::tuple<T...> Read(ValueReader& r) {
    detail::ReadTupleOf(r, sizeof...(T));
    std::tuple<T...> out{Codec<T>::Read(r)...};  // braces: read in order
    r.End();
    return out;
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>> {
  static void Write(ValueWriter& w, const std::pair<A, B>& v) {
    Codec<std::tuple<A, B>>::Write(w, {v.first, v.second});
  }
  static std::pair<A, B> Read(ValueReader& r) {
    auto [a, b] = Codec<std::tuple<A, B>>::Read(r);
    return {std::move(a), std::move(b)};
  }
};

// All of one payload is one value.
template <class T>
Payload EncodeValue(const T& value) {
  Payload payload;
  ValueWriter writer(payload);
  Codec<T>::Write(writer, value);
  return payload;
}

template <class T>
T DecodeValue(const Payload& payload) {
  ValueReader reader(payload);
  return Codec<T>::Read(reader);
}

namespace detail {

// Throws `error` again; its text says first what it is about.
[[noreturn]] GRADWIRE_API void RethrowAbout(const std::string& what, const Error& error);

// DecodeValue(), whose errors say of what: `what()`.
template <class T, class What>
T DecodeValueOf(const Payload& payload, What what) {
  try {
    return DecodeValue<T>(payload);
  } catch (const Error& error) {
    RethrowAbout(what(), error);
  }
}

}  // namespace detail

}  // namespace gradwire
