// Bodies of the handshake and of what a session says about its connection. Each writer stands above its reader;
// docs/wire.md has the grammar.
#include "wire/handshake.h"

#include <algorithm>
#include <utility>

#include "wire/cursor.h"

namespace gradwire::wire {
namespace {

constexpr size_t kRangeBytes = 20;
constexpr size_t kArrivingBytes = 13;  // of a message of which no bytes are there
constexpr size_t kAnswerBytes = 29;

void AppendDigest(std::string& out, const Digest& digest) {
  out.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

Digest ReadDigest(Cursor& in) {
  Digest digest;
  const std::string_view bytes = in.Bytes(digest.size());
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

// Before the version is known to be the own one, nothing behind it may be read.
uint16_t ReadVersion(Cursor& in) {
  if (in.Get<uint32_t>() != Hello::kMagic) ThrowInvalid("the other side does not speak this protocol");
  return in.Get<uint16_t>();
}

uint64_t ReadMessageNumber(Cursor& in) {
  const auto number = in.Get<uint64_t>();
  if (number == 0) ThrowInvalid("messages are numbered from 1");
  return number;
}

uint64_t ReadPathNumber(Cursor& in) {
  const auto number = in.Get<uint64_t>();
  if (number > kMostPathNumber) ThrowInvalid("no path has the number " + std::to_string(number));
  return number;
}

// A range has a byte at least, and its end is a number that can be written down.
void CheckRange(const StorageRange& range) {
  if (range.size == 0 || range.offset + range.size < range.offset) {
    ThrowInvalid("no range of bytes: " + std::to_string(range.size) + " from " + std::to_string(range.offset));
  }
}

// Counted, so that no two runs of the handshake make one input: the bodies have parts of any length.
Digest MacOf(std::string_view label, std::string_view job_key, std::string_view hello, std::string_view challenge,
             uint64_t number) {
  std::string text;
  AppendCounted32(text, label, "a label");
  AppendCounted32(text, hello, "a Hello");
  AppendCounted32(text, challenge, "a Challenge");
  Append(text, number);
  return HmacSha256(job_key, {text});
}

}  // namespace

// --- Hello, Challenge, Proof and Welcome.

std::string Encode(const Hello& hello) {
  std::string out;
  Append(out, hello.magic, hello.version, hello.from.packed());
  AppendCounted16(out, hello.from_name, "a worker name");
  Append(out, hello.to.packed());
  AppendDigest(out, hello.nonce);
  return out;
}

uint16_t VersionOfHello(std::string_view body) {
  Cursor in(body);
  return ReadVersion(in);
}

Hello DecodeHello(std::string_view body) {
  Cursor in(body);
  Hello hello;
  hello.version = ReadVersion(in);
  if (hello.version != Hello::kVersion) {
    ThrowInvalid("the other side speaks version " + std::to_string(hello.version) + " of the protocol, this one " +
                 std::to_string(Hello::kVersion));
  }
  hello.from = WorkerId::FromPacked(in.Get<uint64_t>());
  hello.from_name = in.Counted16();
  hello.to = WorkerId::FromPacked(in.Get<uint64_t>());
  hello.nonce = ReadDigest(in);
  in.ExpectEnd();
  return hello;
}

std::string Encode(const Challenge& challenge) {
  std::string out;
  AppendDigest(out, challenge.nonce);
  return out;
}

Challenge DecodeChallenge(std::string_view body) {
  Cursor in(body);
  const Challenge challenge{.nonce = ReadDigest(in)};
  in.ExpectEnd();
  return challenge;
}

std::string Encode(const Proof& proof) {
  std::string out;
  Append(out, proof.number);
  AppendDigest(out, proof.mac);
  return out;
}

Proof DecodeProof(std::string_view body) {
  Cursor in(body);
  Proof proof{.number = ReadPathNumber(in)};
  if (proof.number == 0) ThrowInvalid("paths are numbered from 1");
  proof.mac = ReadDigest(in);
  in.ExpectEnd();
  return proof;
}

std::string Encode(const Welcome& welcome) {
  std::string out;
  AppendDigest(out, welcome.mac);
  return out;
}

Welcome DecodeWelcome(std::string_view body) {
  Cursor in(body);
  const Welcome welcome{.mac = ReadDigest(in)};
  in.ExpectEnd();
  return welcome;
}

Digest MacOfProof(std::string_view job_key, std::string_view hello, std::string_view challenge, uint64_t number) {
  return MacOf("gradwire connect", job_key, hello, challenge, number);
}

Digest MacOfWelcome(std::string_view job_key, std::string_view hello, std::string_view challenge, uint64_t number) {
  return MacOf("gradwire accept", job_key, hello, challenge, number);
}

// --- Resume.

std::string Encode(const ResumeState& state) {
  std::string out;
  Append(out, state.taken, static_cast<uint32_t>(state.arriving.size()));
  for (const ResumeState::Arriving& arriving : state.arriving) {
    Append(out, arriving.message, static_cast<uint8_t>(arriving.ready), static_cast<uint32_t>(arriving.present.size()));
    for (const StorageRange& range : arriving.present) Append(out, range.storage, range.offset, range.size);
  }
  return out;
}

ResumeState DecodeResumeState(std::string_view body) {
  Cursor in(body);
  ResumeState state{.taken = in.Get<uint64_t>()};
  state.arriving.resize(in.Count32(kArrivingBytes));
  uint64_t last = 0;
  for (ResumeState::Arriving& arriving : state.arriving) {
    arriving.message = in.Get<uint64_t>();
    if (arriving.message <= last || arriving.message > state.taken) ThrowInvalid("arriving messages out of order");
    last = arriving.message;
    arriving.ready = in.Flag();
    arriving.present.resize(in.Count32(kRangeBytes));
    const StorageRange* before = nullptr;
    for (StorageRange& range : arriving.present) {
      range.storage = in.Get<uint32_t>();
      range.offset = in.Get<uint64_t>();
      range.size = in.Get<uint64_t>();
      CheckRange(range);
      if (before != nullptr && (range.storage < before->storage ||
                                (range.storage == before->storage && range.offset < before->offset + before->size))) {
        ThrowInvalid("ranges of bytes that are out of order, or overlap");
      }
      before = &range;
    }
  }
  in.ExpectEnd();
  return state;
}

// --- Refuse.

std::string Encode(const Refuse& refuse) {
  size_t size = std::min(refuse.text.size(), Refuse::kMostText);
  // A character of UTF-8 is not cut apart: whoever shows the text may insist on that.
  while (size > 0 && size < refuse.text.size() && (static_cast<uint8_t>(refuse.text[size]) & 0xC0) == 0x80) --size;
  std::string out;
  Append(out, refuse.code, refuse.number);
  AppendCounted16(out, std::string_view(refuse.text).substr(0, size), "a reason");
  return out;
}

Refuse DecodeRefuse(std::string_view body) {
  Cursor in(body);
  Refuse refuse;
  refuse.code = in.Get<RefuseCode>();
  if (refuse.code < RefuseCode::kStale || refuse.code > RefuseCode::kRemoved) {
    ThrowInvalid("refused for an unknown reason, " + std::to_string(static_cast<int>(refuse.code)));
  }
  refuse.number = ReadPathNumber(in);
  refuse.text = in.Counted16();
  if (refuse.text.size() > Refuse::kMostText) ThrowInvalid("the text of a refusal is too long");
  in.ExpectEnd();
  return refuse;
}

// --- Answers to pieces.

std::string Encode(const std::vector<PieceAnswer>& answers) {
  if (answers.size() > kMostPieceAnswers) ThrowInvalid("too many answers for one frame");
  std::string out;
  Append(out, static_cast<uint16_t>(answers.size()));
  for (const PieceAnswer& answer : answers) {
    Append(out, answer.message, answer.range.storage, answer.verdict, answer.range.offset, answer.range.size);
  }
  return out;
}

std::vector<PieceAnswer> DecodePieceAnswers(std::string_view body) {
  Cursor in(body);
  const size_t count = in.Count16(kAnswerBytes);
  if (count > kMostPieceAnswers) ThrowInvalid("too many answers in one frame");
  std::vector<PieceAnswer> answers(count);
  for (PieceAnswer& answer : answers) {
    answer.message = ReadMessageNumber(in);
    answer.range.storage = in.Get<uint32_t>();
    answer.verdict = in.Get<Verdict>();
    answer.range.offset = in.Get<uint64_t>();
    answer.range.size = in.Get<uint64_t>();
    if (answer.verdict < Verdict::kHad || answer.verdict > Verdict::kNow) ThrowInvalid("an unknown answer to a piece");
    if (answer.verdict != Verdict::kNow) CheckRange(answer.range);
  }
  in.ExpectEnd();
  return answers;
}

}  // namespace gradwire::wire
