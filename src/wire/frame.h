// Frame: the unit that a connection carries. docs/wire.md has the grammar; all numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire::wire {

enum class FrameKind : uint8_t {
  kHello = 1,    // first frame of the connecting side
  kWelcome = 2,  // the accepting side has taken the connection
  kRequest = 3,
  kReply = 4,
  kCancel = 5,
  kBulk = 6,   // a piece of one storage of an earlier Request or Reply
  kLeave = 7,  // the last message of its side
  kCredit = 8,
  kChallenge = 9,  // first frame of the accepting side
  kProof = 10,     // the connecting side knows the job's key
  kResume = 11,    // what its sender has of the other side's messages
  kRefuse = 12,    // the connection, or the pair, is not wanted any more; a code and a text say why
  kAck = 13,       // nothing but `acknowledged`
  kPieces = 14,    // answers to kBulk frames
  kPing = 15,      // answered by a kAck at once
};

// Whether frames of this kind are messages: numbered, acknowledged and sent again on a new connection (O3).
inline bool IsMessage(FrameKind kind) {
  return (kind >= FrameKind::kRequest && kind <= FrameKind::kCancel) || kind == FrameKind::kLeave ||
         kind == FrameKind::kCredit;
}

// 32 bytes: kind, version, reserved u16 (0), body_size u32, bulk_size u64, number u64, acknowledged u64.
struct FrameHeader {
  static constexpr size_t kSize = 32;
  static constexpr uint8_t kVersion = 2;

  FrameKind kind = FrameKind::kRequest;
  uint32_t body_size = 0;     // bytes that follow the header
  uint64_t bulk_size = 0;     // bytes that follow the body; only of a kBulk frame
  uint64_t number = 0;        // of a message: counts those of one direction from 1 (O1); others 0
  uint64_t acknowledged = 0;  // how many messages of the other side were taken; 0 before the connection is open
};

// Of a message. Whoever sends more has its connection closed, so it is refused before it is sent.
inline constexpr uint32_t kMaxBodyBytes = uint32_t{1} << 30;

// Writes the 32 bytes to `out`, or appends them.
void EncodeHeader(const FrameHeader& header, char* out);
void EncodeHeader(const FrameHeader& header, std::string& out);

// `bytes` holds at least kSize bytes. Throws Error(kInvalid) for an unknown version or kind, set reserved bits, and a
// number, body or bulk bytes of a kind that has none.
FrameHeader DecodeHeader(const char* bytes);

}  // namespace gradwire::wire
