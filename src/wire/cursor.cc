#include "wire/cursor.h"

#include <limits>
#include <utility>

namespace gradwire::wire {
namespace {

template <class Length>
void AppendCounted(std::string& out, std::string_view bytes, const char* what) {
  if (bytes.size() > std::numeric_limits<Length>::max()) {
    ThrowInvalid(std::string(what) + " of " + std::to_string(bytes.size()) + " bytes is too long to travel");
  }
  Append(out, static_cast<Length>(bytes.size()));
  out.append(bytes);
}

}  // namespace

void ThrowInvalid(std::string text) { throw Error(ErrorCode::kInvalid, std::move(text)); }

void AppendCounted16(std::string& out, std::string_view bytes, const char* what) {
  AppendCounted<uint16_t>(out, bytes, what);
}

void AppendCounted32(std::string& out, std::string_view bytes, const char* what) {
  AppendCounted<uint32_t>(out, bytes, what);
}

bool Cursor::Flag() {
  const auto byte = Get<uint8_t>();
  if (byte > 1) ThrowInvalid("message holds " + std::to_string(byte) + " where 0 or 1 must stand");
  return byte == 1;
}

void Cursor::ExpectEnd() const {
  if (at_ != end_) ThrowInvalid("message has " + std::to_string(remaining()) + " bytes too many");
}

size_t Cursor::CheckCount(size_t count, size_t size_each) const {
  if (count > remaining() / size_each) {
    ThrowInvalid("message announces " + std::to_string(count) + " entries but has only " + std::to_string(remaining()) +
                 " bytes left");
  }
  return count;
}

void Cursor::ThrowTooShort(size_t wanted) const {
  ThrowInvalid("message ends too early: " + std::to_string(wanted) + " bytes wanted, " + std::to_string(remaining()) +
               " left");
}

}  // namespace gradwire::wire
