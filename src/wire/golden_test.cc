// The bytes themselves. Who changes one changes the protocol: raise FrameHeader::kVersion and Hello::version, and mend
// docs/wire.md.
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <functional>

#include "gradwire/value.h"
#include "wire/call.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/tensor_table.h"

namespace gradwire::wire {
namespace {

std::string FromHex(std::string_view hex) {
  std::string bytes;
  int high = -1;
  for (const char c : hex) {
    if (c == ' ') continue;
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<char>(high * 16 + digit));
      high = -1;
    }
  }
  return bytes;
}

std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && i % 4 == 0) hex += ' ';
    hex += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) >> 4];
    hex += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) & 15];
  }
  return hex;
}

// Both ways: `bytes` are the golden ones, and so are those made again from what the golden ones decode to.
void ExpectGolden(std::string_view hex, const std::string& bytes,
                  const std::function<std::string(std::string)>& again) {
  const std::string golden = FromHex(hex);
  EXPECT_EQ(ToHex(bytes), ToHex(golden));
  EXPECT_EQ(ToHex(again(golden)), ToHex(golden));
}

// --- Frames.

std::string Frame(FrameKind kind, const std::string& body, uint64_t number, uint64_t acknowledged) {
  std::string frame;
  EncodeHeader(
      {.kind = kind, .body_size = static_cast<uint32_t>(body.size()), .number = number, .acknowledged = acknowledged},
      frame);
  return frame + body;
}

std::string BodyOf(EncodedMessage message) { return message.bytes.substr(FrameHeader::kSize); }

template <class Record>
std::string WithTail(const Record& record) {
  EncodedMessage message = Encode(record);
  AppendTail(record, message);
  return BodyOf(std::move(message));
}

std::string FrameAgain(const std::string& frame) {
  const FrameHeader header = DecodeHeader(frame.data());
  const std::string body = frame.substr(FrameHeader::kSize, header.body_size);
  std::vector<BulkTarget> targets;
  bool ready = false;
  std::string body_again;
  switch (header.kind) {
    case FrameKind::kHello: body_again = Encode(DecodeHello(body)); break;
    case FrameKind::kChallenge: body_again = Encode(DecodeChallenge(body)); break;
    case FrameKind::kProof: body_again = Encode(DecodeProof(body)); break;
    case FrameKind::kWelcome: body_again = Encode(DecodeWelcome(body)); break;
    case FrameKind::kResume: body_again = Encode(DecodeResumeState(body)); break;
    case FrameKind::kRefuse: body_again = Encode(DecodeRefuse(body)); break;
    case FrameKind::kPieces: body_again = Encode(DecodePieceAnswers(body)); break;
    case FrameKind::kRequest: body_again = WithTail(DecodeRequest(body, 1 << 20, targets, ready)); break;
    case FrameKind::kReply: body_again = WithTail(DecodeReply(body, 1 << 20, targets, ready)); break;
    case FrameKind::kCancel: body_again = BodyOf(Encode(DecodeCancel(body))); break;
    case FrameKind::kBulk: body_again = Encode(DecodeBulkPiece(body)); break;
    case FrameKind::kCredit: body_again = BodyOf(Encode(DecodeCredit(body))); break;
    case FrameKind::kLeave:
    case FrameKind::kAck:
    case FrameKind::kPing: break;
  }
  std::string again;
  EncodeHeader(header, again);
  return again + body_again + frame.substr(FrameHeader::kSize + header.body_size);
}

// The bytes first, first + 1, ...
Digest DigestOf(uint8_t first) {
  Digest digest;
  for (uint8_t& byte : digest) byte = first++;
  return digest;
}

TEST(Golden, Handshake) {
  const Hello hello{.from = {1, 0xaa}, .from_name = "worker1", .to = {2, 0xbb}, .nonce = DigestOf(0x10)};
  ExpectGolden(
      "01020000 3f000000 00000000 00000000 00000000 00000000 00000000 00000000 47524431 0200aa00 00000100 00000700 "
      "776f726b 657231bb 00000002 00000010 11121314 15161718 191a1b1c 1d1e1f20 21222324 25262728 292a2b2c 2d2e2f",
      Frame(FrameKind::kHello, Encode(hello), 0, 0), FrameAgain);
  ExpectGolden(
      "09020000 20000000 00000000 00000000 00000000 00000000 00000000 00000000 30313233 34353637 38393a3b 3c3d3e3f "
      "40414243 44454647 48494a4b 4c4d4e4f",
      Frame(FrameKind::kChallenge, Encode(Challenge{DigestOf(0x30)}), 0, 0), FrameAgain);
  ExpectGolden(
      "0a020000 28000000 00000000 00000000 00000000 00000000 00000000 00000000 07000000 00000000 50515253 54555657 "
      "58595a5b 5c5d5e5f 60616263 64656667 68696a6b 6c6d6e6f",
      Frame(FrameKind::kProof, Encode(Proof{.number = 7, .mac = DigestOf(0x50)}), 0, 0), FrameAgain);
  ExpectGolden(
      "02020000 20000000 00000000 00000000 00000000 00000000 00000000 00000000 70717273 74757677 78797a7b 7c7d7e7f "
      "80818283 84858687 88898a8b 8c8d8e8f",
      Frame(FrameKind::kWelcome, Encode(Welcome{DigestOf(0x70)}), 0, 0), FrameAgain);
  ExpectGolden(
      "0c020000 0e000000 00000000 00000000 00000000 00000000 00000000 00000000 01090000 00000000 0003006f 6c64",
      Frame(FrameKind::kRefuse, Encode(Refuse{.code = RefuseCode::kStale, .number = 9, .text = "old"}), 0, 0),
      FrameAgain);
}

// Computed outside of this code, of the Hello and the Challenge above: labels and the order of parts are protocol too.
TEST(Golden, Macs) {
  const std::string hello =
      Encode(Hello{.from = {1, 0xaa}, .from_name = "worker1", .to = {2, 0xbb}, .nonce = DigestOf(0x10)});
  const std::string challenge = Encode(Challenge{DigestOf(0x30)});
  const auto hex = [](const Digest& mac) { return ToHex({reinterpret_cast<const char*>(mac.data()), mac.size()}); };
  EXPECT_EQ(hex(MacOfProof("key", hello, challenge, 7)),
            "01362833 f20bd832 5ba2da93 b036347f cd40ecc8 31f534cc d445fd7c 58f175f5");
  EXPECT_EQ(hex(MacOfWelcome("key", hello, challenge, 7)),
            "3a8b57e5 6798d8a4 b21d8e21 7489f0ef bd6e8bea 4559694b 7972ae4b 5f0b863a");
}

TEST(Golden, WhatASessionSaysOfItsConnection) {
  const ResumeState state{.taken = 9,
                          .arriving = {{.message = 4, .ready = true, .present = {{0, 0, 5}, {2, 1 << 20, 7}}},
                                       {.message = 8, .ready = false, .present = {}}}};
  ExpectGolden(
      "0b020000 4e000000 00000000 00000000 00000000 00000000 00000000 00000000 09000000 00000000 02000000 04000000 "
      "00000000 01020000 00000000 00000000 00000000 00050000 00000000 00020000 00000010 00000000 00070000 00000000 "
      "00080000 00000000 00000000 0000",
      Frame(FrameKind::kResume, Encode(state), 0, 0), FrameAgain);
  const std::vector<PieceAnswer> answers = {
      {4, Verdict::kHad, {1, 2, 3}}, {5, Verdict::kLater, {0, 0, 1 << 20}}, {5, Verdict::kNow, {}}};
  ExpectGolden(
      "0e020000 59000000 00000000 00000000 00000000 00000000 03000000 00000000 03000400 00000000 00000100 00000102 "
      "00000000 00000003 00000000 00000005 00000000 00000000 00000002 00000000 00000000 00001000 00000000 05000000 "
      "00000000 00000000 03000000 00000000 00000000 00000000 00",
      Frame(FrameKind::kPieces, Encode(answers), 0, 3), FrameAgain);
  ExpectGolden("07020000 00000000 00000000 00000000 06000000 00000000 02000000 00000000",
               Frame(FrameKind::kLeave, "", 6, 2), FrameAgain);
  ExpectGolden("0d020000 00000000 00000000 00000000 00000000 00000000 02000000 00000000",
               Frame(FrameKind::kAck, "", 0, 2), FrameAgain);
  ExpectGolden("0f020000 00000000 00000000 00000000 00000000 00000000 02000000 00000000",
               Frame(FrameKind::kPing, "", 0, 2), FrameAgain);
}

TEST(Golden, Request) {
  Request request{.call_id = 7, .function = "aten.add", .time_left_us = 1000};
  request.extensions = {{.tag = 1, .bytes = "ext"}};
  ValueWriter writer(request.args);
  writer.BeginTuple(1);
  writer.PutTensor(at::arange(2));
  request.keep_as = KeepAs{.rref = {{1, 0xaa}, 5}, .fork = {{1, 0xaa}, 6}};
  request.references = {{.owner = {2, 0xbb}, .rref = {{2, 0xbb}, 3}, .fork = ForkId{{1, 0xaa}, 7}, .type_name = "int"},
                        {.owner = {2, 0xbb}, .rref = {{2, 0xbb}, 4}, .fork = std::nullopt, .type_name = ""}};
  ExpectGolden(
      "03020000 e2000000 00000000 00000000 09000000 00000000 08000000 00000000 07000000 00000000 e8030000 00000000 "
      "08006174 656e2e61 64640100 01000300 00006578 740a0000 00540100 00007400 00000001 00000001 00000010 00000000 "
      "00000000 00000000 00000000 01000000 00000000 01000401 00000000 00000000 00000000 02000000 00000000 01000000 "
      "00000000 01aa0000 00010000 00050000 00000000 00aa0000 00010000 00060000 00000000 00020000 00bb0000 00020000 "
      "00bb0000 00020000 00030000 00000000 0001aa00 00000100 00000700 00000000 00000300 696e74bb 00000002 000000bb "
      "00000002 00000004 00000000 00000000 0000",
      Frame(FrameKind::kRequest, WithTail(request), 9, 8), FrameAgain);
  ExpectGolden(
      "03020000 25000000 00000000 00000000 01000000 00000000 00000000 00000000 01000000 00000000 00000000 00000000 "
      "00000000 00000000 00000000 00000000 00000000 00",
      Frame(FrameKind::kRequest, WithTail(Request{.call_id = 1}), 1, 0), FrameAgain);
}

TEST(Golden, Reply) {
  Reply reply{.call_id = 7};
  ValueWriter(reply.value).PutInt(-2);
  ExpectGolden(
      "04020000 24000000 00000000 00000000 03000000 00000000 02000000 00000000 07000000 00000000 00000009 00000069 "
      "feffffff ffffffff 00000000 00000000 00000000",
      Frame(FrameKind::kReply, WithTail(reply), 3, 2), FrameAgain);
  Reply failed{.call_id = 7};
  failed.failure = Failure{
      .code = ErrorCode::kRemote, .text = "text", .worker = "w", .type_name = "E", .traceback = "tb", .pickled = "p"};
  ExpectGolden(
      "04020000 39000000 00000000 00000000 03000000 00000000 02000000 00000000 07000000 00000000 010a0400 00007465 "
      "78740100 00007701 00000045 02000000 74620100 00007000 00000000 00000000 00000000 00000000 00",
      Frame(FrameKind::kReply, WithTail(failed), 3, 2), FrameAgain);
}

TEST(Golden, CancelCreditAndBulk) {
  ExpectGolden("08020000 08000000 00000000 00000000 05000000 00000000 02000000 00000000 00040000 00000000",
               Frame(FrameKind::kCredit, BodyOf(Encode(Credit{.begun = 1024})), 5, 2), FrameAgain);
  ExpectGolden("05020000 08000000 00000000 00000000 04000000 00000000 02000000 00000000 07000000 00000000",
               Frame(FrameKind::kCancel, BodyOf(Encode(Cancel{.call_id = 7})), 4, 2), FrameAgain);
  const std::string body = Encode(BulkPiece{.message_number = 9, .storage = 1, .offset = 1 << 20});
  std::string frame;
  EncodeHeader({.kind = FrameKind::kBulk, .body_size = static_cast<uint32_t>(body.size()), .bulk_size = 3}, frame);
  ExpectGolden(
      "06020000 14000000 03000000 00000000 00000000 00000000 00000000 00000000 09000000 00000000 01000000 00001000 "
      "00000000 616263",
      frame + body + "abc", FrameAgain);
}

// --- Values.

void Copy(ValueReader& reader, ValueWriter& writer) {
  const auto copy = [&](size_t count) {
    for (; count > 0; --count) Copy(reader, writer);
    reader.End();
  };
  const ValueTag tag = reader.Peek();
  const size_t count = tag == ValueTag::kTuple  ? reader.BeginTuple()
                       : tag == ValueTag::kList ? reader.BeginList()
                       : tag == ValueTag::kDict ? reader.BeginDict()
                                                : 0;
  switch (tag) {
    case ValueTag::kNone: reader.GetNone(); return writer.PutNone();
    case ValueTag::kTrue:
    case ValueTag::kFalse: return writer.PutBool(reader.GetBool());
    case ValueTag::kInt: return writer.PutInt(reader.GetInt());
    case ValueTag::kFloat: return writer.PutDouble(reader.GetDouble());
    case ValueTag::kComplex: {
      const auto [real, imag] = reader.GetComplex();
      return writer.PutComplex(real, imag);
    }
    case ValueTag::kString: return writer.PutString(reader.GetString());
    case ValueTag::kBytes: return writer.PutBytes(reader.GetBytes());
    case ValueTag::kTensor: return writer.PutTensor(reader.GetTensor());
    case ValueTag::kParameter: return writer.PutTensor(reader.GetTensor(), /*parameter=*/true);
    case ValueTag::kReference: return writer.PutReference(reader.GetReference());
    case ValueTag::kTuple: writer.BeginTuple(count); return copy(count);
    case ValueTag::kList: writer.BeginList(count); return copy(count);
    case ValueTag::kDict: writer.BeginDict(count); return copy(2 * count);
    case ValueTag::kDevice: return writer.PutDevice(reader.GetDevice());
    case ValueTag::kPickle: return writer.PutPickle(reader.GetPickle());
  }
}

TEST(Golden, Values) {
  const auto expect = [](std::string_view hex, const std::function<void(ValueWriter&)>& put) {
    Payload payload;
    ValueWriter writer(payload);
    put(writer);
    ExpectGolden(hex, payload.bytes, [&](std::string golden) {
      Payload from = payload;
      from.bytes = std::move(golden);
      Payload to;
      ValueReader reader(from);
      ValueWriter again(to);
      Copy(reader, again);
      EXPECT_TRUE(reader.AtEnd());
      return to.bytes;
    });
  };
  expect("4e", [](ValueWriter& w) { w.PutNone(); });
  expect("31", [](ValueWriter& w) { w.PutBool(true); });
  expect("30", [](ValueWriter& w) { w.PutBool(false); });
  expect("69feffff ffffffff ff", [](ValueWriter& w) { w.PutInt(-2); });
  expect("66000000 000000f8 3f", [](ValueWriter& w) { w.PutDouble(1.5); });
  expect("63000000 000000f8 3f000000 00000000 c0", [](ValueWriter& w) { w.PutComplex(1.5, -2); });
  expect("73030000 00616263", [](ValueWriter& w) { w.PutString("abc"); });
  expect("62030000 00616263", [](ValueWriter& w) { w.PutBytes("abc"); });
  expect("74000000 00", [](ValueWriter& w) { w.PutTensor(at::ones({})); });
  expect("70000000 00", [](ValueWriter& w) { w.PutTensor(at::ones({}), true); });
  expect("72000000 00", [](ValueWriter& w) { w.PutReference(std::make_shared<Reference>()); });
  expect("54010000 004e", [](ValueWriter& w) { w.BeginTuple(1), w.PutNone(); });
  expect("4c020000 004e4e", [](ValueWriter& w) { w.BeginList(2), w.PutNone(), w.PutNone(); });
  expect("44010000 00730100 00006b31", [](ValueWriter& w) { w.BeginDict(1), w.PutString("k"), w.PutBool(true); });
  expect("64060000 00637564 613a31", [](ValueWriter& w) { w.PutDevice("cuda:1"); });
  expect("50010000 0070", [](ValueWriter& w) { w.PutPickle("p"); });
}

// --- Tensors.

std::string Table(const std::vector<at::Tensor>& tensors, size_t inline_limit) {
  std::string bytes;
  std::vector<BulkSource> bulk;
  TensorTableWriter(tensors, inline_limit).Write(bytes, bulk);
  return bytes;
}

void ExpectTable(std::string_view hex, const std::vector<at::Tensor>& tensors, size_t inline_limit = kInlineLimit) {
  ExpectGolden(hex, Table(tensors, inline_limit), [&](const std::string& golden) {
    Cursor in(golden);
    std::vector<BulkTarget> targets;
    bool ready = false;
    const std::vector<at::Tensor> got = ReadTensorTable(in, 1 << 20, targets, ready);
    in.ExpectEnd();
    return Table(got, inline_limit);
  });
}

TEST(Golden, Tensors) {
  const at::Tensor numbers = at::arange(6, at::kShort).view({2, 3});
  ExpectTable("00000000 00000000", {});
  ExpectTable("00000000 01000000 00", {at::Tensor()});
  ExpectTable(
      "01000000 01000000 0c000000 00000000 00000001 00020003 00040005 00010002 02000000 00000000 00000000 00030000 "
      "00000000 00020000 00000000 00010000 00000000 00030000 00000000 00",
      {numbers.t()});
  ExpectTable(
      "01000000 02000000 0a000000 00000000 00010002 00030004 00050001 00020100 00000002 00000000 00000003 00000000 "
      "00000001 00000000 00000001 00020200 00000000 00000000 00000002 00000000 00000002 00000000 00000003 00000000 "
      "00000001 00000000 000000",
      {numbers.select(0, 1), numbers.slice(1, 1)});
  ExpectTable(
      "01000000 01000000 0c000000 00000000 01010002 02000000 00000000 00000000 00020000 00000000 00030000 00000000 "
      "00030000 00000000 00010000 00000000 00",
      {numbers}, 0);
  ExpectTable(
      "00000000 01000000 01000b02 ffffffff 00000000 00000000 00000000 00000000 02000000 00000000 02000000 00000000 "
      "01000000 00000000",
      {at::empty({0, 2}, at::kBool)});
  ExpectTable(
      "03000000 03000000 04000000 00000000 00000080 3f080000 00000000 00000000 803f0000 00000200 00000000 00000080 "
      "3f010106 01000000 00000000 00000000 00010000 00000000 00010000 00000000 00010209 00010000 00000000 00000000 "
      "0001040f 00020000 00000000 00000000 00",
      {at::ones({1}, at::kFloat).set_requires_grad(true), at::ones({}, at::kComplexFloat).conj(),
       at::_neg_view(at::ones({}, at::kBFloat16))});
  ExpectTable("00000000 01000000 02000501 ffffffff 02000000 00000000 02000000 00000000 01000000 00000000",
              {at::empty({2, 2}, at::TensorOptions(at::kMeta).dtype(at::kHalf)).select(0, 1)});
}

TEST(Golden, QuantizedAndSparseTensors) {
  const at::Tensor floats = at::arange(4, at::kFloat).view({2, 2});
  ExpectTable(
      "01000000 01000000 04000000 00000000 00030507 0903000d 02000000 00000000 00000000 00020000 00000000 00020000 "
      "00000000 00020000 00000000 00010000 00000000 00000000 000000e0 3f030000 00000000 00",
      {at::quantize_per_tensor(floats, 0.5, 3, at::kQUInt8)});
  ExpectTable(
      "03000000 01000000 04000000 00000000 00000202 04100000 00000000 00000000 00000000 f03f0000 00000000 f03f1000 "
      "00000000 00000000 00000000 00000001 00000000 00000004 000c0200 00000000 00000000 00000002 00000000 00000002 "
      "00000000 00000002 00000000 00000001 00000000 00000001 01000701 01000000 00000000 00000000 02000000 00000000 "
      "01000000 00000000 01000401 02000000 00000000 00000000 02000000 00000000 01000000 00000000",
      {at::quantize_per_channel(floats, at::ones({2}, at::kDouble), at::arange(2), 1, at::kQInt8)});
  const at::Tensor indices = at::tensor({0, 2}, at::kLong).view({1, 2});
  ExpectTable(
      "02000000 01000000 10000000 00000000 00000000 00000000 00020000 00000000 00020000 00000000 00000101 05080101 "
      "03000000 00000000 01000402 00000000 00000000 00000000 01000000 00000000 02000000 00000000 02000000 00000000 "
      "01000000 00000000 01000001 01000000 00000000 00000000 02000000 00000000 01000000 00000000",
      {at::sparse_coo_tensor(indices, at::ones({2}, at::kByte), {3}).coalesce()});
  ExpectTable(
      "03000000 01000000 18000000 00000000 00000000 00000000 00010000 00000000 00030000 00000000 00180000 00000000 "
      "00000100 00000000 00000000 00000000 00000100 00000000 00000300 00000000 00000001 02030600 02020200 00000000 "
      "00000200 00000000 00000100 04010000 00000000 00000000 00000300 00000000 00000100 00000000 00000100 04010100 "
      "00000000 00000000 00000300 00000000 00000100 00000000 00000100 00010200 00000000 00000000 00000300 00000000 "
      "00000100 00000000 0000",
      {floats.to(at::kByte).to_sparse_csr()});
  ExpectTable(
      "03000000 01000000 18000000 00000000 00000000 00000000 00010000 00000000 00030000 00000000 00180000 00000000 "
      "00000100 00000000 00000000 00000000 00000100 00000000 00000300 00000000 00000002 01030700 02020200 00000000 "
      "00000200 00000000 00000100 04010000 00000000 00000000 00000300 00000000 00000100 00000000 00000100 04010100 "
      "00000000 00000000 00000300 00000000 00000100 00000000 00000100 00010200 00000000 00000000 00000300 00000000 "
      "00000100 00000000 0000",
      {floats.to(at::kByte).to_sparse_csc()});
  ExpectTable(
      "03000000 01000000 10000000 00000000 00000000 00000000 00020000 00000000 00100000 00000000 00000000 00000000 "
      "00000100 00000000 00000400 00000000 00000000 02010308 00020202 00000000 00000002 00000000 00000001 00040100 "
      "00000000 00000000 00000002 00000000 00000001 00000000 00000001 00040101 00000000 00000000 00000002 00000000 "
      "00000001 00000000 00000001 00000302 00000000 00000000 00000002 00000000 00000002 00000000 00000001 00000000 "
      "00000002 00000000 00000001 00000000 00000001 00000000 000000",
      {floats.to(at::kByte).to_sparse_bsr({2, 1})});
  ExpectTable(
      "03000000 01000000 10000000 00000000 00000000 00000000 00020000 00000000 00100000 00000000 00000000 00000000 "
      "00000100 00000000 00000400 00000000 00000000 01020309 00020202 00000000 00000002 00000000 00000001 00040100 "
      "00000000 00000000 00000002 00000000 00000001 00000000 00000001 00040101 00000000 00000000 00000002 00000000 "
      "00000001 00000000 00000001 00000302 00000000 00000000 00000002 00000000 00000001 00000000 00000002 00000000 "
      "00000002 00000000 00000002 00000000 00000001 00000000 000000",
      {floats.to(at::kByte).to_sparse_bsc({1, 2})});
}

}  // namespace
}  // namespace gradwire::wire
