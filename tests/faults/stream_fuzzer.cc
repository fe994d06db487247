#include "faults/stream_fuzzer.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "wire/frame.h"

namespace gradwire::faults {
namespace {

std::vector<std::string> FramesOf(std::string_view stream) {
  std::vector<std::string> frames;
  while (stream.size() >= wire::FrameHeader::kSize) {
    const wire::FrameHeader header = wire::DecodeHeader(stream.data());
    const uint64_t size = wire::FrameHeader::kSize + header.body_size + header.bulk_size;
    if (size > stream.size()) break;  // where the recording ends
    frames.emplace_back(stream.substr(0, size));
    stream.remove_prefix(size);
  }
  return frames;
}

}  // namespace

StreamFuzzer::StreamFuzzer(std::vector<CuttingProxy::Recording> recordings, uint64_t seed)
    : recordings_(std::move(recordings)), random_(seed) {
  for (const CuttingProxy::Recording& recording : recordings_) {
    frames_of_makers_.push_back(FramesOf(recording.of_maker));
    if (frames_of_makers_.back().size() < 3) throw std::runtime_error("a recording without a handshake");
    std::ranges::copy(frames_of_makers_.back(), std::back_inserter(frames_));
    std::ranges::move(FramesOf(recording.of_other), std::back_inserter(frames_));
  }
}

const std::vector<std::string>& StreamFuzzer::FramesOfMaker() {
  return frames_of_makers_[Draw(frames_of_makers_.size())];
}

std::string StreamFuzzer::Replayed() { return Any().of_maker; }
std::string StreamFuzzer::Reflected() { return Any().of_other; }

std::string StreamFuzzer::Cut() {
  const std::string stream = Draw(4) == 0 ? Reflected() : Replayed();
  // Most cuts fall into the handshake.
  return stream.substr(0, Draw(2) == 0 ? Draw(stream.size() + 1) : Draw(std::min<size_t>(stream.size(), 300)));
}

std::string StreamFuzzer::Repeated() {
  std::string stream = Draw(2) == 0 ? FramesOfMaker()[0] : "";
  for (uint64_t count = 1 + Draw(8); count > 0; --count) {
    const std::string& frame = frames_[Draw(frames_.size())];
    for (uint64_t times = 1 + Draw(3); times > 0; --times) stream += frame;
  }
  return stream;
}

std::string StreamFuzzer::Mutated() {
  std::string stream = Draw(4) == 0 ? Repeated() : Replayed();
  for (uint64_t changes = 1 + Draw(8); changes > 0; --changes) Change(stream);
  return stream;
}

void StreamFuzzer::Change(std::string& bytes) {
  static constexpr uint64_t kNumbers[] = {0, 1, 2, 16, 255, 4096, 4097, 1u << 30, UINT32_MAX, 1ull << 62, UINT64_MAX};
  if (bytes.empty()) return;
  const size_t at = Draw(Draw(2) == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 300));
  switch (Draw(4)) {
    case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << Draw(8))); break;
    case 1: {
      const uint64_t number = kNumbers[Draw(std::size(kNumbers))];
      const size_t width = std::min(size_t{1} << Draw(4), bytes.size() - at);
      bytes.replace(at, width, reinterpret_cast<const char*>(&number), width);
      break;
    }
    case 2: bytes.erase(at, 1 + Draw(40)); break;
    default: bytes.insert(at, bytes.substr(Draw(bytes.size()), 1 + Draw(40)));
  }
}

std::string StreamFuzzer::Random() {
  std::string bytes;
  if (Draw(2) == 0) {
    wire::EncodeHeader({.kind = static_cast<wire::FrameKind>(Draw(18)), .body_size = static_cast<uint32_t>(Draw(5000))},
                       bytes);
  }
  for (uint64_t size = Draw(5000); size > 0; --size) bytes += static_cast<char>(random_());
  return bytes;
}

}  // namespace gradwire::faults
