// Records of the handshake: what comes back, what is refused, and what the macs cover (AUTH).
#include "wire/handshake.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "gradwire/error.h"
#include "wire/cursor.h"

namespace gradwire::wire {
namespace {

Digest DigestFrom(uint8_t first) {
  Digest digest;
  for (uint8_t& byte : digest) byte = first++;
  return digest;
}

const Hello kHello{.from = {1, 2}, .from_name = "worker1", .to = {3, 4}, .nonce = DigestFrom(9)};

// The text of the Error(kInvalid) that `decode` throws.
std::string RefusalOf(const std::function<void()>& decode) {
  try {
    decode();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Handshake, RecordsComeBackWhole) {
  const Hello hello = DecodeHello(Encode(kHello));
  EXPECT_EQ(hello.version, 2);
  EXPECT_EQ(hello.from, (WorkerId{1, 2}));
  EXPECT_EQ(hello.from_name, "worker1");
  EXPECT_EQ(hello.to, (WorkerId{3, 4}));
  EXPECT_EQ(hello.nonce, DigestFrom(9));
  EXPECT_EQ(DecodeChallenge(Encode(Challenge{DigestFrom(1)})).nonce, DigestFrom(1));
  const Proof proof = DecodeProof(Encode(Proof{.number = 7, .mac = DigestFrom(2)}));
  EXPECT_EQ(proof.number, 7u);
  EXPECT_EQ(proof.mac, DigestFrom(2));
  EXPECT_EQ(DecodeWelcome(Encode(Welcome{DigestFrom(3)})).mac, DigestFrom(3));
}

TEST(Handshake, AHelloOfAnotherProtocolOrVersionIsRefusedByName) {
  Hello hello = kHello;
  hello.magic = 0x20544547;
  EXPECT_NE(RefusalOf([&] { DecodeHello(Encode(hello)); }).find("does not speak this protocol"), std::string::npos);
  EXPECT_NE(RefusalOf([&] { VersionOfHello(Encode(hello)); }).find("does not speak"), std::string::npos);
  hello = kHello;
  hello.version = 3;
  const std::string text = RefusalOf([&] { DecodeHello(Encode(hello)); });
  EXPECT_NE(text.find("version 3 "), std::string::npos);
  EXPECT_NE(text.find("this one 2"), std::string::npos);
  EXPECT_EQ(VersionOfHello(Encode(hello)), 3);
  EXPECT_EQ(VersionOfHello(Encode(hello).substr(0, 6)), 3);  // whatever another version has behind it
}

TEST(Handshake, NumbersOfPathsStayFarFromTheirEnd) {
  const auto proof = [](uint64_t number) { return Encode(Proof{.number = number}); };
  EXPECT_EQ(DecodeProof(proof(kMostPathNumber)).number, kMostPathNumber);
  EXPECT_NE(RefusalOf([&] { DecodeProof(proof(0)); }).find("from 1"), std::string::npos);
  EXPECT_NE(RefusalOf([&] { DecodeProof(proof(kMostPathNumber + 1)); }).find("no path"), std::string::npos);
  EXPECT_NE(RefusalOf([&] { DecodeProof(proof(UINT64_MAX)); }).find("no path"), std::string::npos);
  const auto stale = [](uint64_t number) { return Encode(Refuse{.code = RefuseCode::kStale, .number = number}); };
  EXPECT_EQ(DecodeRefuse(stale(kMostPathNumber)).number, kMostPathNumber);
  EXPECT_NE(RefusalOf([&] { DecodeRefuse(stale(kMostPathNumber + 1)); }).find("no path"), std::string::npos);
}

// Each part changes both macs, and a part never passes for a piece of another.
TEST(Handshake, MacsCoverTheWholeRun) {
  const std::string hello = Encode(kHello), challenge = Encode(Challenge{DigestFrom(1)});
  std::set<Digest> macs = {MacOfProof("key", hello, challenge, 7)};
  const auto is_new = [&](const Digest& mac) { return macs.insert(mac).second; };
  EXPECT_TRUE(is_new(MacOfWelcome("key", hello, challenge, 7)));  // two labels: no mac is sent back as the other
  EXPECT_TRUE(is_new(MacOfProof("kez", hello, challenge, 7)));
  EXPECT_TRUE(is_new(MacOfProof("key", hello, challenge, 8)));
  EXPECT_TRUE(is_new(MacOfProof("key", hello, Encode(Challenge{DigestFrom(2)}), 7)));
  Hello other = kHello;
  other.nonce = DigestFrom(10);
  EXPECT_TRUE(is_new(MacOfProof("key", Encode(other), challenge, 7)));
  other = kHello;
  other.to = {3, 5};
  EXPECT_TRUE(is_new(MacOfWelcome("key", Encode(other), challenge, 7)));
  other = kHello;
  other.from_name = "worker2";
  EXPECT_TRUE(is_new(MacOfWelcome("key", Encode(other), challenge, 7)));
  EXPECT_TRUE(is_new(MacOfProof("key", "ab", "c", 7)));
  EXPECT_TRUE(is_new(MacOfProof("key", "a", "bc", 7)));
  EXPECT_TRUE(is_new(MacOfProof("key", "abc", "", 7)));
  EXPECT_EQ(MacOfProof("key", hello, challenge, 7), MacOfProof("key", hello, challenge, 7));
}

TEST(Handshake, AResumeStateComesBackWhole) {
  const ResumeState empty;
  EXPECT_EQ(DecodeResumeState(Encode(empty)), empty);
  const ResumeState state{
      .taken = 9,
      .arriving = {{.message = 4, .ready = true, .present = {{0, 0, 5}, {0, 5, 1}, {0, 100, 1}, {2, 0, UINT64_MAX}}},
                   {.message = 9, .ready = false, .present = {}}}};
  EXPECT_EQ(DecodeResumeState(Encode(state)), state);
}

TEST(Handshake, AResumeStateThatCannotBeIsRefused) {
  const auto refusal = [](const ResumeState& state) { return RefusalOf([&] { DecodeResumeState(Encode(state)); }); };
  const auto ranges = [&](std::vector<StorageRange> present) {
    return refusal({.taken = 1, .arriving = {{.message = 1, .ready = true, .present = std::move(present)}}});
  };
  EXPECT_NE(refusal({.taken = 3, .arriving = {{.message = 4}}}).find("out of order"), std::string::npos);
  EXPECT_NE(refusal({.taken = 3, .arriving = {{.message = 0}}}).find("out of order"), std::string::npos);
  EXPECT_NE(refusal({.taken = 3, .arriving = {{.message = 2}, {.message = 2}}}).find("out of order"),
            std::string::npos);
  EXPECT_NE(refusal({.taken = 3, .arriving = {{.message = 2}, {.message = 1}}}).find("out of order"),
            std::string::npos);
  EXPECT_NE(ranges({{0, 4, 0}}).find("no range"), std::string::npos);
  EXPECT_NE(ranges({{0, UINT64_MAX, 1}}).find("no range"), std::string::npos);
  EXPECT_NE(ranges({{0, 1, UINT64_MAX}}).find("no range"), std::string::npos);
  EXPECT_NE(ranges({{0, 0, 5}, {0, 4, 5}}).find("overlap"), std::string::npos);
  EXPECT_NE(ranges({{0, 5, 5}, {0, 0, 5}}).find("overlap"), std::string::npos);
  EXPECT_NE(ranges({{1, 0, 5}, {0, 9, 5}}).find("out of order"), std::string::npos);
}

// A count is held against the bytes that are left before memory is taken for it.
TEST(Handshake, CountsThatTheirBytesCannotHoldAreRefused) {
  std::string body;
  Append(body, uint64_t{1}, UINT32_MAX);
  EXPECT_NE(RefusalOf([&] { DecodeResumeState(body); }).find("announces"), std::string::npos);
  body.clear();
  Append(body, uint64_t{1}, uint32_t{1}, uint64_t{1}, uint8_t{1}, UINT32_MAX);
  EXPECT_NE(RefusalOf([&] { DecodeResumeState(body); }).find("announces"), std::string::npos);
  body.clear();
  Append(body, uint16_t{1000});
  EXPECT_NE(RefusalOf([&] { DecodePieceAnswers(body); }).find("announces"), std::string::npos);
}

TEST(Handshake, ARefusalSaysWhy) {
  for (uint8_t code = 0; code < 255; ++code) {
    const std::string body = Encode(Refuse{.code = static_cast<RefuseCode>(code), .number = 5, .text = "why"});
    if (code >= 1 && code <= 8) {
      const Refuse refuse = DecodeRefuse(body);
      EXPECT_EQ(static_cast<uint8_t>(refuse.code), code);
      EXPECT_EQ(refuse.number, 5u);
      EXPECT_EQ(refuse.text, "why");
    } else {
      EXPECT_NE(RefusalOf([&] { DecodeRefuse(body); }).find("unknown reason"), std::string::npos);
    }
  }
}

TEST(Handshake, ALongReasonIsCutBetweenCharacters) {
  const auto sent = [](const std::string& text) { return DecodeRefuse(Encode(Refuse{.text = text})).text; };
  const std::string most(Refuse::kMostText, 'x');
  EXPECT_EQ(sent(most), most);
  EXPECT_EQ(sent(most + "yz"), most);
  const std::string two_bytes = "\xc3\xa4";
  EXPECT_EQ(sent(most.substr(1) + two_bytes), most.substr(1));
  EXPECT_EQ(sent(most.substr(2) + two_bytes), most.substr(2) + two_bytes);

  std::string body;
  Append(body, RefuseCode::kEnded, uint64_t{0});
  AppendCounted16(body, most + "y", "a reason");
  EXPECT_NE(RefusalOf([&] { DecodeRefuse(body); }).find("too long"), std::string::npos);
}

TEST(Handshake, AnswersToPiecesComeBackOrAreRefused) {
  const std::vector<PieceAnswer> answers = {
      {1, Verdict::kHad, {2, 3, 4}}, {9, Verdict::kLater, {0, 0, UINT64_MAX}}, {2, Verdict::kNow, {}}};
  EXPECT_EQ(DecodePieceAnswers(Encode(answers)), answers);
  EXPECT_TRUE(DecodePieceAnswers(Encode(std::vector<PieceAnswer>())).empty());
  const auto refusal = [](PieceAnswer answer) {
    return RefusalOf([&] { DecodePieceAnswers(Encode(std::vector{answer})); });
  };
  EXPECT_NE(refusal({0, Verdict::kHad, {0, 0, 1}}).find("from 1"), std::string::npos);
  EXPECT_NE(refusal({1, static_cast<Verdict>(0), {0, 0, 1}}).find("unknown answer"), std::string::npos);
  EXPECT_NE(refusal({1, static_cast<Verdict>(4), {0, 0, 1}}).find("unknown answer"), std::string::npos);
  EXPECT_NE(refusal({1, Verdict::kHad, {0, 0, 0}}).find("no range"), std::string::npos);
  EXPECT_NE(refusal({1, Verdict::kLater, {0, UINT64_MAX, 1}}).find("no range"), std::string::npos);

  const std::vector<PieceAnswer> most(kMostPieceAnswers, answers[0]);
  EXPECT_EQ(DecodePieceAnswers(Encode(most)).size(), kMostPieceAnswers);
  std::vector<PieceAnswer> more = most;
  more.push_back(answers[0]);
  EXPECT_THROW(Encode(more), Error);
  std::string body;
  Append(body, static_cast<uint16_t>(kMostPieceAnswers + 1));
  body += Encode(most).substr(2) + Encode(std::vector{answers[0]}).substr(2);
  EXPECT_NE(RefusalOf([&] { DecodePieceAnswers(body); }).find("too many"), std::string::npos);
}

}  // namespace
}  // namespace gradwire::wire
