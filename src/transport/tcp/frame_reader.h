// FrameReader: cuts what a socket delivers into frames. Belongs to the read role of one connection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/transport.h"
#include "wire/frame.h"

namespace gradwire::transport {

class FrameReader {
 public:
  enum class Result {
    kDrained,  // the socket has no more for now
    kMore,     // it may have, but others are to have their turn
    kEnd,      // the other side has sent its last byte, or the socket is broken: end_errno()
  };

  // `muted`: no frame is delivered once it is true.
  FrameReader(const std::atomic<uint32_t>& body_limit, const std::atomic<bool>& muted)
      : body_limit_(body_limit), muted_(muted) {}

  // Reads and calls the receiver for each frame. `to_the_end`: a short read is no proof that the socket is drained.
  // Throws Error(kInvalid) for bad bytes, and what the receiver throws.
  Result Read(int fd, bool to_the_end, Receiver& receiver);

  // Reads and forgets.
  Result Discard(int fd);

  int end_errno() const { return end_errno_; }  // after kEnd; 0: an orderly end
  bool between_frames() const { return state_ == State::kHeader && begin_ == end_; }

 private:
  enum class State { kHeader, kBody, kBulk };

  void MakeRoom();
  void Consume(Receiver& receiver);
  bool TakeHeader();
  bool TakeBody(Receiver& receiver);
  bool TakeBulk();
  void PassBulk(size_t size);
  size_t buffered() const { return end_ - begin_; }

  const std::atomic<uint32_t>& body_limit_;
  const std::atomic<bool>& muted_;

  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t begin_ = 0;  // of what is read and not consumed
  size_t end_ = 0;

  int end_errno_ = 0;
  State state_ = State::kHeader;
  wire::FrameHeader header_;
  std::string body_;
  std::byte* bulk_ = nullptr;  // where the next bulk byte goes; nullptr: nowhere
  uint64_t bulk_left_ = 0;     // 0 in the other states
};

}  // namespace gradwire::transport
