#include "transport/tcp/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gradwire::transport {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;
constexpr size_t kTurnBytes = 2 * 1024 * 1024;  // read from one connection before others have their turn
// Behind bulk bytes only so much is read into the buffer: enough for the next header, little to copy if bulk follows.
constexpr size_t kReadAheadOfBulk = 4096;

}  // namespace

// A stranger's connection costs no more than its frames may have; a known peer gets the whole buffer.
void FrameReader::MakeRoom() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ = buffered();
    begin_ = 0;
  }
  const size_t wanted = std::min(kBufferBytes, wire::FrameHeader::kSize + body_limit_.load(std::memory_order_relaxed));
  if (wanted <= capacity_) return;
  std::unique_ptr<char[]> larger(new char[wanted]);
  std::copy_n(buffer_.get(), end_, larger.get());
  buffer_ = std::move(larger);
  capacity_ = wanted;
}

FrameReader::Result FrameReader::Read(int fd, bool to_the_end, Receiver& receiver) {
  for (size_t total = 0; total < kTurnBytes;) {
    if (muted_.load(std::memory_order_relaxed)) return Result::kDrained;
    MakeRoom();
    std::array<iovec, 2> parts;
    int count = 0;
    size_t asked = 0;
    const auto add = [&](void* to, size_t size) {
      parts[count++] = {to, size};
      asked += size;
    };
    const size_t direct = bulk_ ? std::min<uint64_t>(bulk_left_, kTurnBytes) : 0;
    if (direct > 0) add(bulk_, direct);
    if (!bulk_ || direct == bulk_left_) {  // what goes nowhere passes through the buffer
      const size_t room = capacity_ - end_;
      add(buffer_.get() + end_, direct > 0 ? std::min(room, kReadAheadOfBulk) : room);
    }
    const ssize_t got = readv(fd, parts.data(), count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Result::kDrained;
    if (got <= 0) {
      end_errno_ = got < 0 ? errno : 0;
      return Result::kEnd;
    }
    const size_t size = static_cast<size_t>(got);
    total += size;
    const size_t into_bulk = std::min(size, direct);
    if (into_bulk > 0) PassBulk(into_bulk);
    end_ += size - into_bulk;
    Consume(receiver);
    if (size < asked && !to_the_end) return Result::kDrained;
  }
  return Result::kMore;
}

FrameReader::Result FrameReader::Discard(int fd) {
  for (size_t total = 0; total < kTurnBytes;) {
    char ignored[4096];
    const ssize_t got = recv(fd, ignored, sizeof ignored, 0);
    if (got == 0) return Result::kEnd;
    if (got > 0) {
      total += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return errno == EAGAIN ? Result::kDrained : Result::kEnd;
    }
  }
  return Result::kMore;
}

void FrameReader::Consume(Receiver& receiver) {
  while (!muted_.load(std::memory_order_relaxed)) {
    if (state_ == State::kHeader && !TakeHeader()) return;
    if (state_ == State::kBody && !TakeBody(receiver)) return;
    if (state_ == State::kBulk && !TakeBulk()) return;
    if (muted_.load(std::memory_order_relaxed)) return;
    state_ = State::kHeader;
    receiver.OnFrame(header_, std::exchange(body_, {}));
  }
}

bool FrameReader::TakeHeader() {
  if (buffered() < wire::FrameHeader::kSize) return false;
  header_ = wire::DecodeHeader(buffer_.get() + begin_);
  const uint32_t limit = body_limit_.load(std::memory_order_relaxed);
  if (header_.body_size > limit) {
    throw Error(ErrorCode::kInvalid, "a frame announces a body of " + std::to_string(header_.body_size) +
                                         " bytes where " + std::to_string(limit) + " are allowed");
  }
  begin_ += wire::FrameHeader::kSize;
  state_ = State::kBody;
  return true;
}

// True when the frame, or all of it but its bulk bytes, is here.
bool FrameReader::TakeBody(Receiver& receiver) {
  const size_t size = std::min<size_t>(buffered(), header_.body_size - body_.size());
  body_.append(buffer_.get() + begin_, size);  // takes memory as bytes come, whatever the header promises
  begin_ += size;
  if (body_.size() < header_.body_size) return false;
  if (header_.bulk_size == 0) return true;
  bulk_ = receiver.BulkTarget(header_, body_);
  bulk_left_ = header_.bulk_size;
  state_ = State::kBulk;
  return true;
}

bool FrameReader::TakeBulk() {
  const size_t size = std::min<uint64_t>(buffered(), bulk_left_);
  if (bulk_ && size > 0) std::memcpy(bulk_, buffer_.get() + begin_, size);
  begin_ += size;
  PassBulk(size);
  return bulk_left_ == 0;
}

void FrameReader::PassBulk(size_t size) {
  if (bulk_) bulk_ += size;
  bulk_left_ -= size;
}

}  // namespace gradwire::transport
