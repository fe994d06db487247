// What tests of Outbox push, hand out and answer.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/error.h"
#include "rpc/outbox.h"
#include "wire/frame.h"

namespace gradwire::rpc {

inline constexpr size_t kPiece = Outbox::kPieceBytes;
inline constexpr size_t kNoBudget = size_t{1} << 40;  // a budget

// A storage of a message, and whether it is still kept.
struct KeptBulk {
  explicit KeptBulk(size_t size) : bytes(std::make_shared<std::vector<std::byte>>(size)), watch(bytes) {}
  wire::BulkSource source() { return {.data = bytes->data(), .size = bytes->size(), .keep = std::move(bytes)}; }
  bool kept() const { return !watch.expired(); }
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::weak_ptr<std::vector<std::byte>> watch;
};

inline wire::EncodedMessage RequestOf(const std::string& body = "body", std::vector<KeptBulk*> bulk = {}) {
  wire::EncodedMessage message{.bytes = std::string(wire::FrameHeader::kSize, '?') + body, .bulk = {}};
  for (KeptBulk* storage : bulk) message.bulk.push_back(storage->source());
  return message;
}

inline uint64_t PushRequest(Outbox& outbox, std::vector<KeptBulk*> bulk = {}) {
  return outbox.Push(wire::FrameKind::kRequest, RequestOf("body", std::move(bulk)));
}

inline wire::FrameHeader HeaderOf(const transport::OutFrame& frame) { return wire::DecodeHeader(frame.head.data()); }

inline std::string BodyOf(const transport::OutFrame& frame) {
  return std::string(frame.head.data() + wire::FrameHeader::kSize, frame.head_size - wire::FrameHeader::kSize) +
         std::string(frame.body);
}

inline std::vector<transport::OutFrame> NextOf(Outbox& outbox, size_t budget = kNoBudget, uint64_t taken = 0) {
  std::vector<transport::OutFrame> frames;
  outbox.Next(budget, taken, frames);
  return frames;
}

// "3" for the header of message 3, "3:0@1+1" for 1 MiB of its storage 0 from 1 MiB on.
inline std::string NamesOf(const std::vector<transport::OutFrame>& frames) {
  std::string names;
  for (const transport::OutFrame& frame : frames) {
    if (!names.empty()) names += ' ';
    const wire::FrameHeader header = HeaderOf(frame);
    if (header.kind != wire::FrameKind::kBulk) {
      names += std::to_string(header.number);
      continue;
    }
    const wire::BulkPiece piece = wire::DecodeBulkPiece(BodyOf(frame));
    names += std::to_string(piece.message_number) + ":" + std::to_string(piece.storage) + "@" +
             std::to_string(piece.offset / kPiece) + "+" + std::to_string(header.bulk_size / kPiece);
  }
  return names;
}

// About pieces `at` to `at + count` of a storage, in MiB.
inline wire::PieceAnswer Answer(wire::Verdict verdict, uint64_t message, uint32_t storage = 0, uint64_t at = 0,
                                uint64_t count = 1) {
  return {.message = message, .verdict = verdict, .range = {storage, at * kPiece, count * kPiece}};
}
inline wire::PieceAnswer Had(uint64_t message, uint32_t storage = 0, uint64_t at = 0, uint64_t count = 1) {
  return Answer(wire::Verdict::kHad, message, storage, at, count);
}
inline wire::PieceAnswer Later(uint64_t message, uint32_t storage = 0, uint64_t at = 0) {
  return Answer(wire::Verdict::kLater, message, storage, at);
}
inline wire::PieceAnswer NowAnswer(uint64_t message) {
  return {.message = message, .verdict = wire::Verdict::kNow, .range = {}};
}

// The text of the Error(kInvalid) that `step` must end in, without a change.
inline std::string Refused(Outbox& outbox, const std::function<void()>& step) {
  const std::string before = outbox.Encoding();
  try {
    step();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_EQ(outbox.Encoding(), before);
    return error.what();
  }
  return "it was allowed";
}

inline wire::ResumeState ToldOf(uint64_t taken, std::vector<wire::ResumeState::Arriving> arriving = {}) {
  return {.taken = taken, .arriving = std::move(arriving)};
}

inline wire::StorageRange RangeOf(uint32_t storage, uint64_t at, uint64_t count) {
  return {storage, at * kPiece, count * kPiece};
}

}  // namespace gradwire::rpc
