// DigestSet: which of millions of states an exploration has seen, in one look at memory each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace gradwire::sim {

// Keeps 128 bits of each key. Two keys of an exploration of ten million states share them with a chance below 1e-24.
class DigestSet {
 public:
  DigestSet() : slots_(1 << 16) {}

  // Whether the key is new.
  bool Insert(std::string_view key) {
    if (3 * (size_ + 1) > 2 * slots_.size()) Grow();
    const Digest digest = DigestOf(key);
    Digest* slot = Find(digest);
    if (*slot == digest) return false;
    *slot = digest;
    ++size_;
    return true;
  }

  size_t size() const { return size_; }

 private:
  struct Digest {
    uint64_t low = 0, high = 0;  // both zero: an empty slot
    bool operator==(const Digest&) const = default;
  };

  static uint64_t Mix(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93U;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93U;
    return x ^ x >> 32;
  }

  static Digest DigestOf(std::string_view key) {
    Digest digest{key.size() + 1, ~key.size()};
    for (size_t at = 0; at < key.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, key.data() + at, std::min(sizeof word, key.size() - at));
      digest.low = (digest.low ^ word) * 0x9e3779b97f4a7c15U;
      digest.low ^= digest.low >> 29;
      digest.high = (digest.high + word) * 0xc2b2ae3d27d4eb4fU;
      digest.high ^= digest.high >> 31;
    }
    return {Mix(digest.low), Mix(digest.high)};
  }

  Digest* Find(const Digest& digest) {
    size_t at = digest.low & (slots_.size() - 1);
    while (slots_[at] != Digest() && slots_[at] != digest) at = (at + 1) & (slots_.size() - 1);
    return &slots_[at];
  }

  void Grow() {
    const std::vector<Digest> old = std::exchange(slots_, std::vector<Digest>(2 * slots_.size()));
    for (const Digest& digest : old) {
      if (digest != Digest()) *Find(digest) = digest;
    }
  }

  std::vector<Digest> slots_;  // a power of two of them
  size_t size_ = 0;
};

}  // namespace gradwire::sim
