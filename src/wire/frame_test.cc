#include "wire/frame.h"

#include <gtest/gtest.h>

#include "gradwire/error.h"

namespace gradwire::wire {
namespace {

const FrameHeader kBulk{
    .kind = FrameKind::kBulk, .body_size = 20, .bulk_size = uint64_t{5} << 32, .number = 7, .acknowledged = 9};

TEST(Frame, AHeaderComesBackAsItWas) {
  std::string bytes = "x";
  EncodeHeader(kBulk, bytes);
  ASSERT_EQ(bytes.size(), 1 + FrameHeader::kSize);
  const FrameHeader back = DecodeHeader(bytes.data() + 1);
  EXPECT_EQ(back.kind, kBulk.kind);
  EXPECT_EQ(back.body_size, kBulk.body_size);
  EXPECT_EQ(back.bulk_size, kBulk.bulk_size);
  EXPECT_EQ(back.number, kBulk.number);
  EXPECT_EQ(back.acknowledged, kBulk.acknowledged);
}

TEST(Frame, WhatIsNoHeaderIsRefused) {
  std::string good;
  EncodeHeader(kBulk, good);
  const auto refused = [&](size_t at, char value) {
    std::string bad = good;
    bad[at] = value;
    EXPECT_THROW(DecodeHeader(bad.data()), Error) << "byte " << at;
  };
  refused(0, 0);  // kinds
  refused(0, 8);
  refused(0, static_cast<char>(FrameKind::kRequest));  // with bulk bytes
  refused(1, 2);                                       // version
  refused(2, 1);                                       // reserved
  refused(3, 1);
}

}  // namespace
}  // namespace gradwire::wire
