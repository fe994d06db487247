#include "wire/frame.h"

#include <gtest/gtest.h>

#include "gradwire/error.h"

namespace gradwire::wire {
namespace {

std::string Encoded(const FrameHeader& header) {
  std::string bytes;
  EncodeHeader(header, bytes);
  return bytes;
}

void ExpectSame(const FrameHeader& header) {
  const std::string bytes = "x" + Encoded(header);
  ASSERT_EQ(bytes.size(), 1 + FrameHeader::kSize);
  const FrameHeader back = DecodeHeader(bytes.data() + 1);
  EXPECT_EQ(back.kind, header.kind);
  EXPECT_EQ(back.body_size, header.body_size);
  EXPECT_EQ(back.bulk_size, header.bulk_size);
  EXPECT_EQ(back.number, header.number);
  EXPECT_EQ(back.acknowledged, header.acknowledged);
}

TEST(Frame, AHeaderComesBackAsItWas) {
  ExpectSame({.kind = FrameKind::kBulk, .body_size = 20, .bulk_size = uint64_t{5} << 32, .acknowledged = 9});
  ExpectSame({.kind = FrameKind::kReply, .body_size = 1, .number = uint64_t{7} << 32, .acknowledged = UINT64_MAX});
}

TEST(Frame, WhatIsNoHeaderIsRefused) {
  const std::string good = Encoded({.kind = FrameKind::kRequest, .number = 7});
  const auto refused = [&](size_t at, uint8_t value) {
    std::string bad = good;
    bad[at] = static_cast<char>(value);
    EXPECT_THROW(DecodeHeader(bad.data()), Error) << "byte " << at;
  };
  refused(0, 0);  // kinds
  refused(0, static_cast<uint8_t>(FrameKind::kPing) + 1);
  refused(0, 255);
  refused(1, 1);  // versions
  refused(1, 3);
  refused(2, 1);  // reserved
  refused(3, 1);
}

// Each kind with a number, bulk bytes and a body: what it may have, as the table of docs/wire.md says.
TEST(Frame, AKindHasOnlyWhatItMayHave) {
  const std::string numbered = "\3\4\5\7\10", with_bulk = "\6", without_body = "\7\15\17";
  for (char kind = 1; kind <= 15; ++kind) {
    const auto taken = [&](const FrameHeader& header) {
      try {
        DecodeHeader(Encoded(header).data());
        return true;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalid);
        return false;
      }
    };
    const auto has = [&](const std::string& kinds) { return kinds.find(kind) != std::string::npos; };
    const FrameHeader header{.kind = static_cast<FrameKind>(kind), .acknowledged = 1};
    SCOPED_TRACE(static_cast<int>(kind));
    EXPECT_TRUE(taken(header));
    FrameHeader other = header;
    other.number = 1;
    EXPECT_EQ(taken(other), has(numbered));
    EXPECT_EQ(IsMessage(header.kind), has(numbered));
    other = header;
    other.bulk_size = 1;
    EXPECT_EQ(taken(other), has(with_bulk));
    other = header;
    other.body_size = 1;
    EXPECT_EQ(taken(other), !has(without_body));
  }
}

}  // namespace
}  // namespace gradwire::wire
