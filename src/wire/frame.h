// Frame: the unit that a connection carries. docs/wire.md has the grammar; all numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire::wire {

enum class FrameKind : uint8_t {
  kHello = 1,    // first frame of the connecting side
  kWelcome = 2,  // first frame of the accepting side
  kRequest = 3,
  kReply = 4,
  kCancel = 5,
  kBulk = 6,   // a piece of one storage of an earlier Request or Reply
  kLeave = 7,  // the sender closes on purpose; nothing follows
  kCredit = 8,
};

// 32 bytes: kind, version, reserved u16 (0), body_size u32, bulk_size u64, number u64, acknowledged u64.
struct FrameHeader {
  static constexpr size_t kSize = 32;
  static constexpr uint8_t kVersion = 1;

  FrameKind kind = FrameKind::kRequest;
  uint32_t body_size = 0;  // bytes that follow the header
  uint64_t bulk_size = 0;  // bytes that follow the body; only of a kBulk frame
  uint64_t number = 0;     // Request, Reply, Cancel, Credit: counts the headers of this session from 1 (O1); others 0
  uint64_t acknowledged = 0;  // highest number of the other side whose header step is done
};

// Of a message. Whoever sends more has its connection closed, so it is refused before it is sent.
inline constexpr uint32_t kMaxBodyBytes = uint32_t{1} << 30;

// Appends the 32 bytes to `out`.
void EncodeHeader(const FrameHeader& header, std::string& out);

// `bytes` holds at least kSize bytes. Throws Error(kInvalid) for an unknown version, kind or set reserved bits.
FrameHeader DecodeHeader(const char* bytes);

}  // namespace gradwire::wire
