// What a peer may send: random, truncated and changed bytes. Only Error may come out, and no memory beyond the limits.
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "wire/call.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/ivalue.h"
#include "wire/tensor_samples.h"

namespace gradwire::wire {
namespace {

constexpr char kAnnounced[] = ", announced";
constexpr size_t kMaxBulk = 1 << 20;
constexpr int64_t kSmallEnoughToUse = 1 << 16;  // elements

std::string BodyOf(const auto& record, size_t inline_limit) {
  EncodedMessage message = Encode(record, inline_limit);
  AppendTail(record, message);
  return message.bytes.substr(FrameHeader::kSize);
}

Payload ValueOfEveryTag(const at::Tensor& tensor) {
  Payload payload;
  ValueWriter writer(payload);
  writer.BeginTuple(11);
  writer.PutNone();
  writer.PutBool(true);
  writer.PutBool(false);
  writer.PutInt(1);
  writer.PutDouble(2);
  writer.PutComplex(3, 4);
  writer.PutString("five");
  writer.PutBytes("six");
  writer.PutDevice("cpu");
  writer.BeginList(1);
  writer.BeginDict(1);
  writer.PutString("key");
  writer.PutPickle("pickle");
  writer.PutTensor(tensor);
  return payload;
}

void Walk(ValueReader& reader) {
  const auto walk = [&](size_t values) {
    for (; values > 0; --values) Walk(reader);
    reader.End();
  };
  switch (reader.Peek()) {
    case ValueTag::kNone: return reader.GetNone();
    case ValueTag::kTrue:
    case ValueTag::kFalse: reader.GetBool(); return;
    case ValueTag::kInt: reader.GetInt(); return;
    case ValueTag::kFloat: reader.GetDouble(); return;
    case ValueTag::kComplex: reader.GetComplex(); return;
    case ValueTag::kString: reader.GetString(); return;
    case ValueTag::kBytes: reader.GetBytes(); return;
    case ValueTag::kDevice: reader.GetDevice(); return;
    case ValueTag::kPickle: reader.GetPickle(); return;
    case ValueTag::kTensor:
    case ValueTag::kParameter: reader.GetTensor(); return;
    case ValueTag::kReference: reader.GetReference(); return;
    case ValueTag::kTuple: return walk(reader.BeginTuple());
    case ValueTag::kList: return walk(reader.BeginList());
    case ValueTag::kDict: return walk(2 * reader.BeginDict());
  }
  throw Error(ErrorCode::kInvalid, "unknown tag");
}

// Reads every element that a tensor has, unless these are too many.
void Use(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || tensor.numel() > kSmallEnoughToUse) return;
  try {
    if (tensor.layout() != at::kStrided) {
      tensor.detach().to_dense();
    } else {
      tensor.detach().clone();
    }
  } catch (const c10::Error&) {
    // Not every operator knows every dtype, quantizer and number of dimensions.
  }
}

void UsePayload(Payload& payload, std::vector<BulkTarget>& targets, std::mt19937_64& random) {
  Allocate(targets);
  size_t announced = 0;
  for (const BulkTarget& target : targets) {
    announced += target.size;
    std::generate_n(target.data, target.size, [&] { return static_cast<std::byte>(random() % 4); });
  }
  EXPECT_LE(announced, kMaxBulk);
  CheckArrived(payload);
  for (const at::Tensor& tensor : payload.tensors) Use(tensor);
  {
    ValueReader reader(payload);
    Walk(reader);
  }
  try {
    ValueReader reader(payload);
    ReadIValue(reader, *c10::AnyType::get());
  } catch (const Error&) {
    // Bytes and pickles are no values of libtorch.
  }
}

// What comes through can be computed with.
void UseResumeState(const ResumeState& state) {
  for (const ResumeState::Arriving& arriving : state.arriving) {
    ASSERT_LE(arriving.message, state.taken);
    for (const StorageRange& range : arriving.present) ASSERT_GT(range.offset + range.size, range.offset);
  }
}

void UseAnswers(const std::vector<PieceAnswer>& answers) {
  ASSERT_LE(answers.size(), kMostPieceAnswers);
  for (const PieceAnswer& answer : answers) ASSERT_GT(answer.message, 0u);
}

struct Decoder {
  const char* name;
  std::function<void(const std::string&, std::mt19937_64&)> run;
};

const std::vector<Decoder>& Decoders() {
  static const std::vector<Decoder> decoders = {
      {"request",
       [](const std::string& body, std::mt19937_64& random) {
         std::vector<BulkTarget> targets;
         bool ready = false;
         Request request = DecodeRequest(body, kMaxBulk, targets, ready);
         UsePayload(request.args, targets, random);
       }},
      {"reply",
       [](const std::string& body, std::mt19937_64& random) {
         std::vector<BulkTarget> targets;
         bool ready = false;
         Reply reply = DecodeReply(body, kMaxBulk, targets, ready);
         UsePayload(reply.value, targets, random);
       }},
      {"cancel", [](const std::string& body, std::mt19937_64&) { DecodeCancel(body); }},
      {"piece", [](const std::string& body, std::mt19937_64&) { DecodeBulkPiece(body); }},
      {"hello",
       [](const std::string& body, std::mt19937_64&) {
         VersionOfHello(body);
         DecodeHello(body);
       }},
      {"header",
       [](std::string body, std::mt19937_64&) {
         body.resize(FrameHeader::kSize);
         DecodeHeader(body.data());
       }},
      {"value",
       [](const std::string& body, std::mt19937_64&) {
         Payload payload;
         payload.bytes = body;
         payload.tensors = {at::ones({2})};
         ValueReader reader(payload);
         Walk(reader);
       }},
      {"credit", [](const std::string& body, std::mt19937_64&) { DecodeCredit(body); }},
      {"challenge", [](const std::string& body, std::mt19937_64&) { DecodeChallenge(body); }},
      {"proof", [](const std::string& body, std::mt19937_64&) { DecodeProof(body); }},
      {"welcome", [](const std::string& body, std::mt19937_64&) { DecodeWelcome(body); }},
      {"resume", [](const std::string& body, std::mt19937_64&) { UseResumeState(DecodeResumeState(body)); }},
      {"refuse",
       [](const std::string& body, std::mt19937_64&) { ASSERT_LE(DecodeRefuse(body).text.size(), Refuse::kMostText); }},
      {"pieces", [](const std::string& body, std::mt19937_64&) { UseAnswers(DecodePieceAnswers(body)); }},
  };
  return decoders;
}

// True when it was taken. An exception of another type fails the test.
bool Feed(const Decoder& decoder, const std::string& body, std::mt19937_64& random) {
  try {
    decoder.run(body, random);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid) << error.what();
  }
  return false;
}

struct Message {
  std::string name;
  const Decoder* decoder;
  std::string body;
};

const std::vector<Message>& ValidMessages() {
  static const std::vector<Message> messages = [] {
    std::vector<Message> all;
    const auto& decoders = Decoders();
    for (const TensorSample& sample : TensorSamples()) {
      Request request{.call_id = 1, .function = "f"};
      request.args = ValueOfEveryTag(sample.make());
      all.push_back({sample.name, &decoders[0], BodyOf(request, kInlineLimit)});
      all.push_back({std::string(sample.name) + kAnnounced, &decoders[0], BodyOf(request, 0)});
    }
    Request request{.call_id = 1, .function = "f", .extensions = {{1, "one"}, {0x8002, "two"}}};
    request.args = ValueOfEveryTag(at::ones({2}));
    request.keep_as = KeepAs{{{1, 2}, 3}, {{1, 2}, 4}};
    request.references = {{{1, 2}, {{1, 2}, 3}, ForkId{{1, 2}, 5}, "type"}, {{1, 2}, {{1, 2}, 3}, std::nullopt, ""}};
    all.push_back({"full request", &decoders[0], BodyOf(request, kInlineLimit)});
    Reply failed{.call_id = 1};
    failed.failure = Failure{ErrorCode::kRemote, "text", "worker", "type", "traceback", "pickled"};
    failed.value.bytes = "N";
    all.push_back({"failed reply", &decoders[1], BodyOf(failed, kInlineLimit)});
    Reply reply{.call_id = 1};
    reply.value = ValueOfEveryTag(at::ones({2}));
    all.push_back({"reply", &decoders[1], BodyOf(reply, kInlineLimit)});
    all.push_back({"cancel", &decoders[2], Encode(Cancel{7}).bytes.substr(FrameHeader::kSize)});
    all.push_back({"piece", &decoders[3], Encode(BulkPiece{1, 2, 3})});
    all.push_back({"hello", &decoders[4], Encode(Hello{.from_name = "name"})});
    all.push_back({"value", &decoders[6], ValueOfEveryTag(at::ones({2})).bytes});
    all.push_back({"credit", &decoders[7], Encode(Credit{1024}).bytes.substr(FrameHeader::kSize)});
    all.push_back({"challenge", &decoders[8], Encode(Challenge{})});
    all.push_back({"proof", &decoders[9], Encode(Proof{.number = 1})});
    all.push_back({"welcome", &decoders[10], Encode(Welcome{})});
    const std::vector<StorageRange> present = {{0, 0, 1}, {0, 2, 1}, {1, 0, 1}};
    all.push_back({"resume", &decoders[11], Encode(ResumeState{9, {{1, true, present}, {9, false, {}}}})});
    all.push_back({"refuse", &decoders[12], Encode(Refuse{.text = "text"})});
    const std::vector<PieceAnswer> answers = {{1, Verdict::kHad, {0, 0, 1}}, {1, Verdict::kNow, {}}};
    all.push_back({"pieces", &decoders[13], Encode(answers)});
    return all;
  }();
  return messages;
}

TEST(Robustness, RandomBytes) {
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string body(random() % 200, '\0');
    // Small numbers get further than evenly spread ones.
    for (char& c : body) c = static_cast<char>(random() % 2 == 0 ? random() % 4 : random());
    for (const Decoder& decoder : Decoders()) refused += Feed(decoder, body, random) ? 0 : 1;
  }
  EXPECT_GT(refused, 30000);
}

TEST(Robustness, EveryTruncation) {
  std::mt19937_64 random(2);
  for (const Message& message : ValidMessages()) {
    SCOPED_TRACE(message.name);
    // An announced storage is filled with random bytes here, which are bad indices.
    if (!message.name.ends_with(kAnnounced)) {
      ASSERT_TRUE(Feed(*message.decoder, message.body, random));
    }
    for (size_t size = 0; size < message.body.size(); ++size) {
      ASSERT_FALSE(Feed(*message.decoder, message.body.substr(0, size), random)) << size << " bytes";
    }
    if (message.decoder->name != std::string("value")) {
      ASSERT_FALSE(Feed(*message.decoder, message.body + '\0', random));
    }
  }
}

void Change(std::string& body, std::mt19937_64& random) {
  static constexpr uint64_t kNumbers[] = {0,          1,          2,          255,        256,        0x7fffffff,
                                          0xffffffff, 0x80000000, 1ull << 32, 1ull << 61, 1ull << 63, INT64_MAX,
                                          UINT64_MAX, 0xfffffffe, 1ull << 40, 3,          0xffff};
  if (body.empty()) return;
  const size_t at = random() % body.size();
  switch (random() % 5) {
    case 0: body[at] = static_cast<char>(random()); break;
    case 1: body[at] = static_cast<char>(body[at] ^ (1 << random() % 8)); break;
    case 2: {
      const uint64_t number = kNumbers[random() % std::size(kNumbers)];
      const size_t width = std::min(size_t{1} << random() % 4, body.size() - at);
      body.replace(at, width, reinterpret_cast<const char*>(&number), width);
      break;
    }
    case 3: body.erase(at, random() % 8); break;
    default: body.insert(at, body.substr(random() % body.size(), random() % 16));
  }
}

TEST(Robustness, ChangedMessages) {
  std::mt19937_64 random(3);
  int taken = 0;
  for (const Message& message : ValidMessages()) {
    SCOPED_TRACE(message.name);
    for (int i = 0; i < 300; ++i) {
      std::string body = message.body;
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) Change(body, random);
      taken += Feed(*message.decoder, body, random) ? 1 : 0;
    }
  }
  EXPECT_GT(taken, 2000);  // changes that get past the first checks reach the later ones
}

}  // namespace
}  // namespace gradwire::wire
