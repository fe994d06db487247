#include "transport/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gradwire::transport {
namespace {

constexpr size_t kMaxParts = 64;             // of one system call; up to three per frame
constexpr size_t kBatchBytes = 1024 * 1024;  // pulled at once: what the source has later waits for no more than this

}  // namespace

bool FrameWriter::Finish() {
  finishing_.store(true, std::memory_order_release);
  return role_.Wake();
}

bool FrameWriter::End() {
  Abort();
  if (!role_.End()) return false;
  LetGo();
  return true;
}

FrameWriter::Progress FrameWriter::Write(int fd) {
  if (done_ || aborted_.load(std::memory_order_relaxed)) return GiveBackForGood(Progress::kIdle);
  if (frames_.empty()) {
    role_.BeforePull();
    const bool last = finishing_.load(std::memory_order_acquire);
    source_->Next(kBatchBytes, frames_);
    if (frames_.empty()) {
      if (last) return GiveBackForGood(Progress::kFinished);
      switch (role_.GiveBack()) {
        case WriteRole::Given::kFree: return Progress::kIdle;
        case WriteRole::Given::kWanted: return Progress::kGoOn;
        case WriteRole::Given::kEnded: return Ended();
      }
    }
  }
  std::array<iovec, kMaxParts> parts;
  size_t count = 0;
  size_t skip = offset_;
  const auto add = [&](const void* data, size_t size) {
    if (size > skip) parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, size - skip};
    skip -= std::min(skip, size);
  };
  for (size_t i = first_; i < frames_.size() && count + 3 <= kMaxParts; ++i) {
    const OutFrame& frame = frames_[i];
    add(frame.head.data(), frame.head_size);
    add(frame.body.data(), frame.body.size());
    add(frame.bulk.data, frame.bulk.size);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t written = count ? sendmsg(fd, &message, MSG_NOSIGNAL) : 0;
  if (written >= 0) {
    Advance(static_cast<size_t>(written));
    return Progress::kGoOn;
  }
  if (errno == EINTR) return Progress::kGoOn;
  if (errno == EAGAIN) return role_.GiveBackUntilRoom() == WriteRole::Given::kEnded ? Ended() : Progress::kFull;
  write_errno_ = errno;
  return GiveBackForGood(Progress::kBroken);
}

FrameWriter::Progress FrameWriter::GiveBackForGood(Progress progress) {
  done_ = true;
  return role_.GiveBackUntilRoom() == WriteRole::Given::kEnded ? Ended() : progress;
}

FrameWriter::Progress FrameWriter::Ended() {
  LetGo();
  return Progress::kEnded;
}

void FrameWriter::Advance(size_t written) {
  written += std::exchange(offset_, 0);
  while (first_ < frames_.size() && written >= frames_[first_].size()) written -= frames_[first_++].size();
  offset_ = written;
  if (first_ < frames_.size()) return;
  first_ = 0;
  source_->Release(frames_);
}

void FrameWriter::LetGo() {
  const auto source = std::move(source_);
  if (!frames_.empty()) source->Release(frames_);
}

}  // namespace gradwire::transport
