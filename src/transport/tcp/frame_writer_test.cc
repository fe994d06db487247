#include "transport/tcp/frame_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace gradwire::transport {
namespace {

using Progress = FrameWriter::Progress;

class ListSource : public FrameSource {
 public:
  void Next(size_t budget, std::vector<OutFrame>& frames) override {
    for (size_t bytes = 0; bytes < budget && next < all.size(); ++given) {
      bytes += all[next].size();
      frames.push_back(all[next++]);
    }
  }
  void Release(std::vector<OutFrame>& frames) override {
    released += frames.size();
    frames.clear();
  }
  std::vector<OutFrame> all;
  size_t next = 0, given = 0, released = 0;
};

std::string BytesOf(const OutFrame& frame) {
  return std::string(frame.head.data(), frame.head_size) + std::string(frame.body) +
         std::string(reinterpret_cast<const char*>(frame.bulk.data), frame.bulk.size);
}

OutFrame FrameOf(size_t body, size_t bulk) {
  const auto kind = bulk ? wire::FrameKind::kBulk : wire::FrameKind::kRequest;
  OutFrame frame = MakeFrame({.kind = kind, .bulk_size = bulk}, std::string(body, static_cast<char>('a' + body % 26)));
  auto bytes = std::make_shared<std::string>(bulk, static_cast<char>('A' + bulk % 26));
  frame.bulk = {.data = reinterpret_cast<const std::byte*>(bytes->data()), .size = bulk, .keep = bytes};
  return frame;
}

class FrameWriterTest : public testing::Test {
 protected:
  FrameWriterTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0); }
  ~FrameWriterTest() override {
    for (const int end : ends_) close(end);
  }
  std::string Received() {
    std::string all;
    char bytes[65536];
    for (ssize_t got; (got = read(ends_[1], bytes, sizeof bytes)) > 0;) all.append(bytes, static_cast<size_t>(got));
    return all;
  }
  Progress WriteOn() {
    Progress progress;
    while ((progress = writer_.Write(ends_[0])) == Progress::kGoOn) {
    }
    return progress;
  }
  void Open() {
    writer_.Open(source_);
    ASSERT_TRUE(writer_.OnWritable());
    EXPECT_EQ(WriteOn(), Progress::kIdle);
  }

  int ends_[2];
  const std::shared_ptr<ListSource> source_ = std::make_shared<ListSource>();
  FrameWriter writer_;
};

TEST_F(FrameWriterTest, WritesFramesOfAllShapesInOrder) {
  Open();
  std::string expected;
  for (size_t n = 0; n < 500; ++n) {
    source_->all.push_back(FrameOf(n % 5 == 0 ? 0 : n % 91, n % 3 == 0 ? n : 0));
    expected += BytesOf(source_->all.back());
  }
  ASSERT_TRUE(writer_.Wake());
  std::string received;
  for (Progress progress; (progress = WriteOn()) != Progress::kIdle;) {
    ASSERT_EQ(progress, Progress::kFull);
    received += Received();
    ASSERT_TRUE(writer_.OnWritable());
  }
  received += Received();
  EXPECT_TRUE(received == expected);
  EXPECT_EQ(source_->released, 500u);
}

TEST_F(FrameWriterTest, GoesOnInTheMiddleOfAPart) {
  const int small = 4096;
  setsockopt(ends_[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  Open();
  std::string expected;
  for (size_t n = 0; n < 40; ++n) {
    source_->all.push_back(FrameOf(n * 37, 50'000 + n));
    expected += BytesOf(source_->all.back());
  }
  ASSERT_TRUE(writer_.Wake());
  std::string received;
  while (WriteOn() == Progress::kFull) {
    EXPECT_FALSE(writer_.Wake());
    received += Received();
    ASSERT_TRUE(writer_.OnWritable());
  }
  received += Received();
  EXPECT_TRUE(received == expected);
  EXPECT_EQ(source_->released, 40u);
}

TEST_F(FrameWriterTest, FinishesOnceTheSourceHasNoMore) {
  Open();
  source_->all = {FrameOf(3, 0), FrameOf(40, 0)};
  ASSERT_TRUE(writer_.Finish());
  EXPECT_EQ(WriteOn(), Progress::kFinished);
  EXPECT_EQ(Received().size(), 32u + 3 + 32 + 40);
  source_->all.push_back(FrameOf(3, 0));
  EXPECT_FALSE(writer_.Wake());
  if (writer_.OnWritable()) {
    EXPECT_EQ(WriteOn(), Progress::kIdle);
  }
  EXPECT_EQ(source_->given, 2u);
}

// Finish() comes after a pull that found nothing, and before the role is given back.
TEST_F(FrameWriterTest, WhatTheSourceHadBeforeFinishIsPulled) {
  struct Late : ListSource {
    void Next(size_t budget, std::vector<OutFrame>& frames) override {
      ListSource::Next(budget, frames);
      if (!frames.empty() || std::exchange(done, true)) return;
      all.push_back(FrameOf(1, 0));
      EXPECT_FALSE(writer->Finish());
    }
    FrameWriter* writer = nullptr;
    bool done = false;
  };
  auto late = std::make_shared<Late>();
  late->writer = &writer_;
  writer_.Open(late);
  ASSERT_TRUE(writer_.OnWritable());
  EXPECT_EQ(WriteOn(), Progress::kFinished);
  EXPECT_EQ(late->released, 1u);
}

TEST_F(FrameWriterTest, AnEndWhileNobodyWritesReleasesWhatIsHalfWritten) {
  Open();
  source_->all = {FrameOf(0, 10'000'000)};
  ASSERT_TRUE(writer_.Wake());
  EXPECT_EQ(WriteOn(), Progress::kFull);
  EXPECT_TRUE(writer_.End());
  EXPECT_EQ(source_->released, 1u);
  EXPECT_EQ(source_.use_count(), 1);
  EXPECT_FALSE(writer_.OnWritable());
}

TEST_F(FrameWriterTest, AnEndMeanwhileIsLeftToTheWriter) {
  Open();
  source_->all = {FrameOf(0, 10'000'000)};
  ASSERT_TRUE(writer_.Wake());
  EXPECT_EQ(writer_.Write(ends_[0]), Progress::kGoOn);
  EXPECT_FALSE(writer_.End());
  EXPECT_EQ(source_->released, 0u);
  EXPECT_EQ(WriteOn(), Progress::kEnded);
  EXPECT_EQ(source_->released, 1u);
  EXPECT_EQ(source_.use_count(), 1);
}

TEST_F(FrameWriterTest, AfterAnAbortNothingIsWrittenAndTheEndMayCome) {
  Open();
  source_->all = {FrameOf(0, 10'000'000), FrameOf(1, 0)};
  ASSERT_TRUE(writer_.Wake());
  EXPECT_EQ(writer_.Write(ends_[0]), Progress::kGoOn);
  const size_t written = Received().size();
  EXPECT_LT(written, 10'000'000u);
  writer_.Abort();
  EXPECT_EQ(WriteOn(), Progress::kIdle);
  EXPECT_EQ(Received().size(), 0u);
  EXPECT_TRUE(writer_.End());
  EXPECT_EQ(source_->released, source_->given);
}

TEST_F(FrameWriterTest, ABrokenSocketIsToldOnce) {
  Open();
  close(std::exchange(ends_[1], -1));
  source_->all = {FrameOf(1, 0)};
  ASSERT_TRUE(writer_.Wake());
  EXPECT_EQ(WriteOn(), Progress::kBroken);
  EXPECT_EQ(writer_.write_errno(), EPIPE);
  EXPECT_FALSE(writer_.Wake());
  if (writer_.OnWritable()) {
    EXPECT_EQ(WriteOn(), Progress::kIdle);
  }
  EXPECT_TRUE(writer_.End());
  EXPECT_EQ(source_->released, 1u);
}

TEST(MakeFrame, AShortBodyStandsInTheHead) {
  for (const size_t size : {0, 1, 31, 32, 33, 5000}) {
    const std::string body(size, 'x');
    const OutFrame frame = MakeFrame({.kind = wire::FrameKind::kRequest, .body_size = 99, .number = 7}, body);
    const OutFrame copy = frame;  // shares the body
    for (const OutFrame* each : {&frame, &copy}) {
      const std::string bytes = BytesOf(*each);
      EXPECT_EQ(bytes.size(), each->size());
      EXPECT_EQ(wire::DecodeHeader(bytes.data()).body_size, size);
      EXPECT_EQ(wire::DecodeHeader(bytes.data()).number, 7u);
      EXPECT_EQ(bytes.substr(wire::FrameHeader::kSize), body);
      EXPECT_EQ(each->body_keep != nullptr, size > 32);
    }
  }
}

}  // namespace
}  // namespace gradwire::transport
