#include "transport/tcp/frame_reader.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

thread_local size_t largest_allocation = 0;

}  // namespace

// Of the whole test program: they note what is asked for. Not inlined: a compiler that sees one of them alone takes it
// for a mistake.
[[gnu::noinline]] void* operator new(size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  if (void* const memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace gradwire::transport {
namespace {

class Keeper : public Receiver {
 public:
  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view) override {
    if (nowhere) return nullptr;
    bulk.resize(header.bulk_size);
    return bulk.data();
  }
  void OnFrame(const wire::FrameHeader& header, std::string body) override {
    headers.push_back(header);
    capacities.push_back(body.capacity());
    bodies.push_back(std::move(body));
  }
  void OnClosed(const Failure&) override {}

  bool nowhere = false;
  std::vector<std::byte> bulk;
  std::vector<wire::FrameHeader> headers;
  std::vector<std::string> bodies;
  std::vector<size_t> capacities;
};

class FrameReaderTest : public testing::Test {
 protected:
  FrameReaderTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0); }
  ~FrameReaderTest() override {
    for (const int end : ends_) close(end);
  }
  // As much as the socket takes at a time, reading in between.
  void Feed(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(ends_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      reader_.Read(ends_[1], false, keeper_);
    }
  }
  static std::string Header(wire::FrameHeader header) {
    std::string bytes;
    wire::EncodeHeader(header, bytes);
    return bytes;
  }

  int ends_[2];
  std::atomic<uint32_t> body_limit_{wire::kMaxBodyBytes};
  std::atomic<bool> muted_{false};
  FrameReader reader_{body_limit_, muted_};
  Keeper keeper_;
};

TEST_F(FrameReaderTest, ABodyTakesMemoryAsItsBytesComeAndNotAsItsHeaderPromises) {
  largest_allocation = 0;
  Feed(Header({.kind = wire::FrameKind::kRequest, .body_size = wire::kMaxBodyBytes}));
  EXPECT_LT(largest_allocation, 1'000'000u);
  for (size_t bytes = 0; bytes < 5'000'000; bytes += 50'000) {
    Feed(std::string(50'000, 'x'));
    EXPECT_LT(largest_allocation, 1'000'000 + 3 * (bytes + 50'000));
  }
  EXPECT_TRUE(keeper_.bodies.empty());
}

TEST_F(FrameReaderTest, ABodyThatHasComeTakesTwiceItsSizeAtMost) {
  for (const uint32_t size : {100u, 4096u, 65'537u, 3'000'001u}) {
    Feed(Header({.kind = wire::FrameKind::kRequest, .body_size = size}) + std::string(size, 'y'));
    ASSERT_EQ(keeper_.bodies.size(), 1u);
    EXPECT_TRUE(keeper_.bodies[0] == std::string(size, 'y'));
    EXPECT_LE(keeper_.capacities[0], 2 * size);
    keeper_.bodies.clear();
    keeper_.capacities.clear();
  }
}

// Whatever the pieces that it comes in.
TEST_F(FrameReaderTest, BulkThatGoesNowhereIsForgotten) {
  keeper_.nowhere = true;
  const std::string frames = Header({.kind = wire::FrameKind::kBulk, .body_size = 4, .bulk_size = 100'000}) + "bulk" +
                             std::string(100'000, 'z') +
                             Header({.kind = wire::FrameKind::kRequest, .body_size = 4, .number = 9}) + "next";
  for (const size_t piece : {1ul, 31ul, 36ul, 37ul, 4096ul, 99'999ul, frames.size()}) {
    for (size_t from = 0; from < frames.size(); from += piece) Feed(std::string_view(frames).substr(from, piece));
    ASSERT_EQ(keeper_.bodies, (std::vector<std::string>{"bulk", "next"})) << piece;
    EXPECT_EQ(keeper_.headers[0].bulk_size, 100'000u);
    EXPECT_TRUE(reader_.between_frames());
    keeper_ = {};
    keeper_.nowhere = true;
  }
}

TEST_F(FrameReaderTest, ForgettingTakesNoMemory) {
  keeper_.nowhere = true;
  Feed(Header({.kind = wire::FrameKind::kBulk, .bulk_size = 50'000'000}));
  const std::string some(100'000, 'z');
  largest_allocation = 0;
  for (int i = 0; i < 500; ++i) Feed(some);
  EXPECT_LT(largest_allocation, 10'000u);
  EXPECT_EQ(keeper_.headers.size(), 1u);
}

}  // namespace
}  // namespace gradwire::transport
