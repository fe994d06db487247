// StreamFuzzer: what strangers send, made of what a job has sent.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faults/cutting_proxy.h"

namespace gradwire::faults {

class StreamFuzzer {
 public:
  // Each recording must hold a handshake at least.
  StreamFuzzer(std::vector<CuttingProxy::Recording> recordings, uint64_t seed);

  std::string Replayed();   // all that the connecting side had sent, as it was
  std::string Reflected();  // what the accepting side had sent
  std::string Cut();        // the first bytes of either
  std::string Repeated();   // frames of both sides, in any order, again and again; often a right Hello first
  std::string Mutated();    // with changed, lost and repeated bytes
  std::string Random();     // noise, often behind the header of a frame

  // Frames of the connecting side, one by one, the Hello first.
  const std::vector<std::string>& FramesOfMaker();
  uint64_t Draw(uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random_); }

 private:
  const CuttingProxy::Recording& Any() { return recordings_[Draw(recordings_.size())]; }
  void Change(std::string& bytes);

  const std::vector<CuttingProxy::Recording> recordings_;
  std::vector<std::vector<std::string>> frames_of_makers_;
  std::vector<std::string> frames_;
  std::mt19937_64 random_;
};

}  // namespace gradwire::faults
