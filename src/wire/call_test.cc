#include "wire/call.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace gradwire::wire {
namespace {

std::string Body(const EncodedMessage& message) { return message.bytes.substr(FrameHeader::kSize); }

Request FullRequest() {
  Request request{.call_id = 7, .function = "aten.add", .time_left_us = 1500};
  request.extensions = {{.tag = 1, .bytes = "context"}, {.tag = Extension::kRequired | 9, .bytes = ""}};
  request.args.bytes = "T";
  request.args.tensors = {at::arange(3)};
  request.keep_as = KeepAs{.rref = {{1, 11}, 5}, .fork = {{1, 11}, 6}};
  request.references = {{.owner = {2, 22}, .rref = {{3, 33}, 8}, .fork = ForkId{{1, 11}, 9}, .type_name = "Net"},
                        {.owner = {0, 1}, .rref = {{0, 1}, 2}, .fork = std::nullopt, .type_name = ""}};
  return request;
}

TEST(Request, OneThatItsReceiverWouldRefuseIsNotEncoded) {
  Request request{.call_id = 7, .function = "f"};
  request.args.bytes.resize(kMaxBodyBytes);
  try {
    Encode(request);
    FAIL() << "its receiver would close the connection";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_NE(error.failure().text.find("too long"), std::string::npos);
  }
}

TEST(Call, ARequestComesBackWhole) {
  const Request sent = FullRequest();
  EncodedMessage message = Encode(sent);
  AppendTail(sent, message);
  std::vector<BulkTarget> targets;
  bool ready = false;
  const Request got = DecodeRequest(Body(message), 0, targets, ready);
  EXPECT_TRUE(targets.empty());
  EXPECT_EQ(got.call_id, 7u);
  EXPECT_EQ(got.function, "aten.add");
  EXPECT_EQ(got.time_left_us, 1500);
  ASSERT_EQ(got.extensions.size(), 2u);
  EXPECT_EQ(got.extensions[0].tag, 1);
  EXPECT_EQ(got.extensions[0].bytes, "context");
  EXPECT_EQ(got.extensions[1].tag, 0x8009);
  EXPECT_EQ(got.args.bytes, "T");
  ASSERT_EQ(got.args.tensors.size(), 1u);
  EXPECT_TRUE(got.args.tensors[0].equal(sent.args.tensors[0]));
  ASSERT_TRUE(got.keep_as);
  EXPECT_EQ(got.keep_as->rref, sent.keep_as->rref);
  EXPECT_EQ(got.keep_as->fork, sent.keep_as->fork);
  ASSERT_EQ(got.references.size(), 2u);
  EXPECT_EQ(got.references[0].owner, sent.references[0].owner);
  EXPECT_EQ(got.references[0].rref, sent.references[0].rref);
  EXPECT_EQ(got.references[0].fork, sent.references[0].fork);
  EXPECT_EQ(got.references[0].type_name, "Net");
  EXPECT_FALSE(got.references[1].fork);
}

TEST(Call, AReplyCarriesAValueOrAFailure) {
  Reply sent{.call_id = 9};
  sent.value.bytes = "N";
  EncodedMessage message = Encode(sent);
  AppendTail(sent, message);
  std::vector<BulkTarget> targets;
  bool ready = false;
  EXPECT_EQ(DecodeReply(Body(message), 0, targets, ready).value.bytes, "N");

  sent = {.call_id = 10};
  sent.failure = Failure{.code = ErrorCode::kRemote,
                         .text = "it failed",
                         .worker = "w1",
                         .type_name = "ValueError",
                         .traceback = "line 1",
                         .pickled = std::string("\x80\x00", 2)};
  message = Encode(sent);
  AppendTail(sent, message);
  const Reply got = DecodeReply(Body(message), 0, targets, ready);
  ASSERT_TRUE(got.failure);  // C5: the same in memory and on the wire
  EXPECT_EQ(got.failure->code, ErrorCode::kRemote);
  EXPECT_EQ(got.failure->text, "it failed");
  EXPECT_EQ(got.failure->worker, "w1");
  EXPECT_EQ(got.failure->type_name, "ValueError");
  EXPECT_EQ(got.failure->traceback, "line 1");
  EXPECT_EQ(got.failure->pickled, sent.failure->pickled);
}

TEST(Call, EveryErrorCodeTravelsAndOthersDoNot) {
  for (int code = 0; code < 256; ++code) {
    Reply sent{.call_id = 1, .failure = Failure{.code = static_cast<ErrorCode>(code), .text = "x"}};
    EncodedMessage message = Encode(sent);
    AppendTail(sent, message);
    std::vector<BulkTarget> targets;
    bool ready = false;
    if (ErrorCodeName(static_cast<ErrorCode>(code)) != "Unknown") {
      EXPECT_EQ(DecodeReply(Body(message), 0, targets, ready).failure->code, static_cast<ErrorCode>(code));
    } else {
      EXPECT_THROW(DecodeReply(Body(message), 0, targets, ready), Error);
    }
  }
}

TEST(Call, CancelCreditAndPieceComeBack) {
  EXPECT_EQ(DecodeCredit(Body(Encode(Credit{.begun = 1024}))).begun, 1024u);
  EXPECT_EQ(DecodeCancel(Body(Encode(Cancel{.call_id = 77}))).call_id, 77u);
  const BulkPiece piece = DecodeBulkPiece(Encode(BulkPiece{.message_number = 5, .storage = 6, .offset = 1ull << 40}));
  EXPECT_EQ(piece.message_number, 5u);
  EXPECT_EQ(piece.storage, 6u);
  EXPECT_EQ(piece.offset, 1ull << 40);
}

TEST(Call, WhatIsTooLongForItsFieldIsRefusedBeforeItIsSent) {
  EXPECT_THROW(Encode(Request{.function = std::string(65536, 'f')}), Error);
}

TEST(Call, LargeTensorsAreAnnouncedAndFilledLater) {
  const at::Tensor large = at::arange(10000);
  Request sent{.call_id = 1, .function = "f"};
  sent.args.tensors = {large};
  EncodedMessage message = Encode(sent);
  AppendTail(sent, message);
  EXPECT_LT(message.bytes.size(), 200u);
  ASSERT_EQ(message.bulk.size(), 1u);
  EXPECT_EQ(message.bulk[0].size, 80000u);
  EXPECT_EQ(static_cast<const void*>(message.bulk[0].data), large.const_data_ptr());  // by reference

  std::vector<BulkTarget> targets;
  bool ready = false;
  const Request got = DecodeRequest(Body(message), 80000, targets, ready);
  ASSERT_EQ(targets.size(), 1u);
  ASSERT_EQ(targets[0].size, 80000u);
  std::copy_n(message.bulk[0].data, targets[0].size, targets[0].data);
  EXPECT_TRUE(got.args.tensors[0].equal(large));

  EXPECT_TRUE(ready);
  targets.clear();
  EXPECT_THROW(DecodeRequest(Body(message), 79999, targets, ready), Error);
}

// A request whose body announces storages of these sizes, and tensors that are all of them.
std::string Announcing(const std::vector<uint64_t>& sizes) {
  Request sent{.call_id = 1, .function = "f"};
  sent.args.tensors = std::vector<at::Tensor>(sizes.size());
  for (at::Tensor& tensor : sent.args.tensors) tensor = at::arange(1, at::kByte);
  EncodedMessage message = Encode(sent, /*inline_limit=*/0);
  AppendTail(sent, message);
  std::string body = Body(message);
  constexpr size_t kStorage = 9;  // the size first
  constexpr size_t kTensor = 32;  // of one dimension
  constexpr size_t kTail = 5;
  const size_t table = body.size() - kTail - sizes.size() * (kTensor + kStorage);
  for (size_t i = 0; i < sizes.size(); ++i) std::memcpy(&body[table + kStorage * i], &sizes[i], sizeof sizes[i]);
  return body;
}

TEST(Call, ALargeMessageHasNoMemoryUntilItIsAllocated) {
  for (const int64_t bytes : {kMemoryAtOnce, kMemoryAtOnce + 1}) {
    Request sent{.call_id = 1, .function = "f"};
    const at::Tensor first = at::arange(100'000, at::kByte);
    const at::Tensor second = at::arange(bytes - 100'000, at::kByte);
    sent.args.tensors = {first, second, first};
    EncodedMessage message = Encode(sent);
    AppendTail(sent, message);
    std::vector<BulkTarget> targets;
    bool ready = false;
    const Request got = DecodeRequest(Body(message), SIZE_MAX, targets, ready);
    ASSERT_EQ(targets.size(), 2u);
    EXPECT_EQ(ready, bytes == kMemoryAtOnce) << "all storages of a message count";
    for (const BulkTarget& target : targets) EXPECT_EQ(target.data != nullptr, ready);
    Allocate(targets);
    for (size_t i = 0; i < targets.size(); ++i) {
      ASSERT_EQ(targets[i].size, message.bulk[i].size);
      std::copy_n(message.bulk[i].data, targets[i].size, targets[i].data);
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(got.args.tensors[i].equal(sent.args.tensors[i]));
    EXPECT_EQ(got.args.tensors[0].const_data_ptr(), got.args.tensors[2].const_data_ptr());
  }
}

TEST(Call, MemoryThatCannotBeHadIsAnErrorThatNamesTheSizeAndTakesNone) {
  std::vector<BulkTarget> targets;
  bool ready = true;
  const Request got = DecodeRequest(Announcing({1 << 20, 1ull << 60, 8}), SIZE_MAX, targets, ready);
  EXPECT_FALSE(ready) << "to announce much is no reason to fail: the pair goes on";
  ASSERT_EQ(targets.size(), 3u);
  try {
    Allocate(targets);
    FAIL() << "there is no such machine";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOverloaded);
    EXPECT_EQ(std::string(error.what()), "there is no memory for 1152921504607895560 bytes of tensors");
  }
  for (const BulkTarget& target : targets) {
    EXPECT_EQ(target.data, nullptr);
    EXPECT_EQ(target.storage.data(), nullptr);
  }
  targets[1] = targets[2];
  Allocate(targets);
  EXPECT_NE(targets[0].data, nullptr);
}

TEST(Call, LengthsOfOneMessageAreCheckedAsASum) {
  std::vector<BulkTarget> targets;
  bool ready = false;
  const auto text = [&](const std::vector<uint64_t>& sizes, size_t most) -> std::string {
    targets.clear();
    try {
      DecodeRequest(Announcing(sizes), most, targets, ready);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      return error.what();
    }
  };
  EXPECT_EQ(text({600, 400}, 1000), "");
  EXPECT_EQ(text({600, 401}, 1000), "message announces more than 1000 bytes");
  EXPECT_EQ(text({1ull << 62, 1ull << 62}, SIZE_MAX), "message announces more than 9223372036854775807 bytes");
  EXPECT_NE(text({1ull << 63, 1ull << 63, 8}, SIZE_MAX), "") << "their sum has no number";
  EXPECT_NE(text({UINT64_MAX}, SIZE_MAX), "");
}

TEST(Call, ALargeValueStaysInTheMemoryOfItsBody) {
  Reply sent{.call_id = 1};
  sent.extensions = {{.tag = 1, .bytes = "context"}};
  sent.value.bytes = std::string(100'000, 'v');
  sent.value.tensors = {at::arange(3)};
  sent.references = {{.owner = {2, 22}, .rref = {{3, 33}, 8}, .fork = std::nullopt, .type_name = "Net"}};
  EncodedMessage message = Encode(sent);
  AppendTail(sent, message);
  std::string body = Body(message);
  const char* memory = body.data();
  std::vector<BulkTarget> targets;
  bool ready = false;
  const Reply got = DecodeReply(std::move(body), 0, targets, ready);
  EXPECT_EQ(got.value.bytes, sent.value.bytes);
  EXPECT_EQ(got.value.bytes.data(), memory);
  EXPECT_TRUE(got.value.tensors[0].equal(at::arange(3)));
  ASSERT_EQ(got.references.size(), 1u);
  EXPECT_EQ(got.references[0].type_name, "Net");
}

}  // namespace
}  // namespace gradwire::wire
