#include "wire/frame.h"

#include <bit>
#include <cstring>

#include "gradwire/error.h"

namespace gradwire::wire {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and written as it is in memory");

namespace {

// The header as it lies on the wire: no padding.
struct Layout {
  uint8_t kind;
  uint8_t version;
  uint16_t reserved;
  uint32_t body_size;
  uint64_t bulk_size;
  uint64_t number;
  uint64_t acknowledged;
};
static_assert(sizeof(Layout) == FrameHeader::kSize);

bool HasNoBody(FrameKind kind) {
  return kind == FrameKind::kLeave || kind == FrameKind::kAck || kind == FrameKind::kPing;
}

}  // namespace

void EncodeHeader(const FrameHeader& header, char* out) {
  const Layout layout{.kind = static_cast<uint8_t>(header.kind),
                      .version = FrameHeader::kVersion,
                      .reserved = 0,
                      .body_size = header.body_size,
                      .bulk_size = header.bulk_size,
                      .number = header.number,
                      .acknowledged = header.acknowledged};
  std::memcpy(out, &layout, sizeof layout);
}

void EncodeHeader(const FrameHeader& header, std::string& out) {
  char bytes[FrameHeader::kSize];
  EncodeHeader(header, bytes);
  out.append(bytes, sizeof bytes);
}

FrameHeader DecodeHeader(const char* bytes) {
  Layout layout;
  std::memcpy(&layout, bytes, sizeof layout);
  if (layout.version != FrameHeader::kVersion || layout.reserved != 0) {
    throw Error(ErrorCode::kInvalid, "a frame of version " + std::to_string(layout.version) + ", not " +
                                         std::to_string(FrameHeader::kVersion));
  }
  if (layout.kind < static_cast<uint8_t>(FrameKind::kHello) || layout.kind > static_cast<uint8_t>(FrameKind::kPing)) {
    throw Error(ErrorCode::kInvalid, "a frame of unknown kind " + std::to_string(layout.kind));
  }
  const auto kind = static_cast<FrameKind>(layout.kind);
  if (layout.bulk_size != 0 && kind != FrameKind::kBulk) {
    throw Error(ErrorCode::kInvalid, "bulk bytes behind a frame that has none");
  }
  if (layout.number != 0 && !IsMessage(kind)) {
    throw Error(ErrorCode::kInvalid, "a number at a frame that is no message");
  }
  if (layout.body_size != 0 && HasNoBody(kind)) {
    throw Error(ErrorCode::kInvalid, "a body of a frame that has none");
  }
  return {.kind = kind,
          .body_size = layout.body_size,
          .bulk_size = layout.bulk_size,
          .number = layout.number,
          .acknowledged = layout.acknowledged};
}

}  // namespace gradwire::wire
