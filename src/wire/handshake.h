// Records of the handshake and of what a session says about its connection (docs/wire.md). All bodies are checked as
// strictly as those of calls: Decode throws Error(kInvalid) for bad bytes and never reads outside them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hmac.h"
#include "base/ids.h"

namespace gradwire::wire {

// The connecting side says who it is, whom it looks for, and a number that it has drawn for this connection alone.
struct Hello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  WorkerId from;
  std::string from_name;  // empty: it joins nothing, it only asks whether the other one lives
  WorkerId to;
  Digest nonce{};

  static constexpr uint32_t kMagic = 0x31445247;  // "GRD1"
  static constexpr uint16_t kVersion = 2;
};
std::string Encode(const Hello& hello);
// Throws for a Hello of another version too, whose later fields are unknown: VersionOfHello() tells that case apart.
Hello DecodeHello(std::string_view body);
uint16_t VersionOfHello(std::string_view body);

// The accepting side's number.
struct Challenge {
  Digest nonce{};
};
std::string Encode(const Challenge& challenge);
Challenge DecodeChallenge(std::string_view body);

// Numbers of paths count connects, so none comes near; whoever has heard the highest can still add one.
inline constexpr uint64_t kMostPathNumber = uint64_t{1} << 62;

// The connecting side knows the job's key, and asks for this connection to become the pair's path number `number`.
struct Proof {
  uint64_t number = 0;  // 1 to kMostPathNumber
  Digest mac{};
};
std::string Encode(const Proof& proof);
Proof DecodeProof(std::string_view body);

// The accepting side knows it too, and has taken the connection.
struct Welcome {
  Digest mac{};
};
std::string Encode(const Welcome& welcome);
Welcome DecodeWelcome(std::string_view body);

// Both macs cover this very run: both nonces, both names, the number. `hello`, `challenge`: the bodies as they
// travelled.
Digest MacOfProof(std::string_view job_key, std::string_view hello, std::string_view challenge, uint64_t number);
Digest MacOfWelcome(std::string_view job_key, std::string_view hello, std::string_view challenge, uint64_t number);

// Bytes [offset, offset + size) of one storage of a message.
struct StorageRange {
  uint32_t storage = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  bool operator==(const StorageRange&) const = default;
};

// What one side has of the other's messages when a connection is taken: all up to `taken`, but for the bytes that
// `arriving` lack. Messages up to `taken` that are not listed are complete; of later ones nothing is here.
struct ResumeState {
  struct Arriving {
    uint64_t message = 0;
    bool ready = false;                 // there is memory for its bytes
    std::vector<StorageRange> present;  // in order, apart from each other
    bool operator==(const Arriving&) const = default;
  };
  uint64_t taken = 0;
  std::vector<Arriving> arriving;  // by rising number, from 1 to `taken`
  bool operator==(const ResumeState&) const = default;
};
std::string Encode(const ResumeState& state);
ResumeState DecodeResumeState(std::string_view body);

// Why a connection is not taken, or that the pair has ended.
enum class RefuseCode : uint8_t {
  kStale = 1,        // another connection of the pair is newer: `number` is the highest that is known
  kOtherWorker = 2,  // another worker, or another life of it, is here
  kVersion = 3,      // the other side speaks another version of the protocol
  kKey = 4,          // the job's key is another one
  kNoMember = 5,     // the connecting side is not a member of this group
  // The pair has ended: the text says why. On an open connection too.
  kEnded = 6,    // either side may be well
  kLeft = 7,     // because the sender is not in the group any more
  kRemoved = 8,  // because the receiver is not: `number` is the epoch of a view without it
};
struct Refuse {
  RefuseCode code = RefuseCode::kEnded;
  uint64_t number = 0;  // kMostPathNumber at most
  std::string text;     // kMostText bytes at most; Encode cuts what is longer

  static constexpr size_t kMostText = 1024;
};
std::string Encode(const Refuse& refuse);
Refuse DecodeRefuse(std::string_view body);

// Answers to kBulk frames, in their order.
enum class Verdict : uint8_t {
  kHad = 1,    // the bytes are in place
  kLater = 2,  // there was no memory for them: they were forgotten
  kNow = 3,    // there is memory for this message now; of the range only `message` counts
};
struct PieceAnswer {
  uint64_t message = 0;
  Verdict verdict = Verdict::kHad;
  StorageRange range;
  bool operator==(const PieceAnswer&) const = default;
};
inline constexpr size_t kMostPieceAnswers = 1024;  // of one frame
std::string Encode(const std::vector<PieceAnswer>& answers);
std::vector<PieceAnswer> DecodePieceAnswers(std::string_view body);

}  // namespace gradwire::wire
