// Cursor reads little-endian fields from bytes that a peer sent, never beyond their end; Append writes them.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/ids.h"
#include "gradwire/error.h"

namespace gradwire::wire {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in memory");

// What may stand in a message as it is. No bool: a peer could send one that is neither true nor false.
template <class T>
concept Field = (std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::is_enum_v<T>;

[[noreturn]] void ThrowInvalid(std::string text);

// Appends all fields at once, without padding.
template <Field... T>
void Append(std::string& out, T... fields) {
  char packed[(sizeof(T) + ...)];
  char* at = packed;
  ((std::memcpy(at, &fields, sizeof(T)), at += sizeof(T)), ...);
  out.append(packed, sizeof packed);
}

// A length of 16 or 32 bits, then the bytes. Throws Error(kInvalid) naming `what` when the length does not fit.
void AppendCounted16(std::string& out, std::string_view bytes, const char* what);
void AppendCounted32(std::string& out, std::string_view bytes, const char* what);

template <class Tag>
void AppendId(std::string& out, const GlobalId<Tag>& id) {
  Append(out, id.creator.packed(), id.number);
}

// Not thread-safe; the bytes must outlive it. Each Get throws Error(kInvalid) when the bytes end before its field does.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t remaining() const { return static_cast<size_t>(end_ - at_); }

  template <Field T>
  T Get() {
    T field;
    std::memcpy(&field, Take(sizeof(T)), sizeof(T));
    return field;
  }

  std::string_view Bytes(size_t size) { return {Take(size), size}; }
  std::string_view Counted16() { return Bytes(Get<uint16_t>()); }
  std::string_view Counted32() { return Bytes(Get<uint32_t>()); }

  // A count of things that take at least `size_each` bytes (above 0) each: more than can follow is an error.
  size_t Count16(size_t size_each) { return CheckCount(Get<uint16_t>(), size_each); }
  size_t Count32(size_t size_each) { return CheckCount(Get<uint32_t>(), size_each); }

  // A byte that is 0 or 1.
  bool Flag();

  template <class Id>
  Id GetId() {
    Id id;
    id.creator = WorkerId::FromPacked(Get<uint64_t>());
    id.number = Get<uint64_t>();
    return id;
  }

  // Throws unless all bytes have been read.
  void ExpectEnd() const;

 private:
  const char* Take(size_t size) {
    if (size > remaining()) ThrowTooShort(size);
    const char* field = at_;
    at_ += size;
    return field;
  }
  size_t CheckCount(size_t count, size_t size_each) const;
  [[noreturn]] void ThrowTooShort(size_t wanted) const;

  const char* at_;
  const char* end_;
};

}  // namespace gradwire::wire
