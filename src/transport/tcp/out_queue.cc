#include "transport/tcp/out_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gradwire::transport {
namespace {

constexpr size_t kMaxParts = 64;  // of one system call; two per frame
constexpr size_t kMaxBatchFrames = kMaxParts / 2;
constexpr size_t kMaxBatchBytes = 1024 * 1024;  // beyond it no further frame joins, so that headers wait for little

}  // namespace

void OutQueue::Push(OutFrame frame, Lane lane) {
  std::lock_guard lock(mutex_);  // a dropped frame is freed after unlock, by the caller
  if (!stopped_) lanes_[static_cast<size_t>(lane)].push_back(std::move(frame));
}

bool OutQueue::TakeRole() {
  std::lock_guard lock(mutex_);
  if (writing_ || full_ || stopped_) return false;
  writing_ = true;
  return true;
}

bool OutQueue::OnWritable() {
  std::lock_guard lock(mutex_);
  if (stopped_ || !full_) return false;
  full_ = false;
  writing_ = true;
  return true;
}

bool OutQueue::Stop() {
  std::deque<OutFrame> dropped[2];  // freed after unlock
  Batch dropped_batch;
  std::lock_guard lock(mutex_);
  stopped_ = true;
  std::swap(dropped, lanes_);
  if (writing_) return false;
  std::swap(dropped_batch, batch_);
  return true;
}

// Headers first; bulk frames join one by one while the batch is small.
void OutQueue::FillBatchLocked() {
  batch_.frames.clear();
  batch_.first = 0;
  size_t bytes = 0;
  for (auto& lane : lanes_) {
    while (!lane.empty() && batch_.frames.size() < kMaxBatchFrames && bytes < kMaxBatchBytes) {
      bytes += SizeOf(lane.front());
      batch_.frames.push_back(std::move(lane.front()));
      lane.pop_front();
    }
  }
}

OutQueue::Progress OutQueue::Write(int fd) {
  if (batch_.empty()) {
    std::lock_guard lock(mutex_);
    if (stopped_) return StoppedLocked();
    FillBatchLocked();
    if (batch_.empty()) {
      writing_ = false;
      return Progress::kEmpty;
    }
  }
  std::array<iovec, kMaxParts> parts;
  size_t count = 0;
  size_t skip = batch_.offset;
  const auto add = [&](const void* data, size_t size) {
    if (size > skip) parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, size - skip};
    skip -= std::min(skip, size);
  };
  for (size_t i = batch_.first; i < batch_.frames.size(); ++i) {
    const OutFrame& frame = batch_.frames[i];
    add(frame.bytes.data(), frame.bytes.size());
    add(frame.bulk.data, frame.bulk.size);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t written = count ? sendmsg(fd, &message, MSG_NOSIGNAL) : 0;
  if (written < 0) return errno == EINTR ? Progress::kGoOn : Refused(errno);
  batch_.Advance(static_cast<size_t>(written));
  return Progress::kGoOn;
}

OutQueue::Progress OutQueue::Refused(int error) {
  std::lock_guard lock(mutex_);
  if (stopped_) return StoppedLocked();
  if (error == EAGAIN) {
    full_ = true;
    writing_ = false;
    return Progress::kFull;
  }
  write_errno_ = error;
  writing_ = false;
  full_ = true;  // nobody tries again; Stop() follows
  return Progress::kBroken;
}

OutQueue::Progress OutQueue::StoppedLocked() {
  batch_ = {};
  writing_ = false;
  return Progress::kStopped;
}

void OutQueue::Batch::Advance(size_t written) {
  written += std::exchange(offset, 0);
  while (first < frames.size() && written >= SizeOf(frames[first])) {
    written -= SizeOf(frames[first]);
    frames[first++] = {};
  }
  offset = written;
}

}  // namespace gradwire::transport
