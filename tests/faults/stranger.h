// Stranger: somebody who connects to a worker's port and does not belong to the job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.h"

namespace gradwire::faults {

// Blocking, but for what the other side does not take or send within kLimit: that throws.
class Stranger {
 public:
  explicit Stranger(const std::string& address);  // "tcp://127.0.0.1:4711"
  ~Stranger();
  Stranger(Stranger&& other) noexcept;
  Stranger(const Stranger&) = delete;

  // As much as the other side takes until it closes the connection.
  void Send(std::string_view bytes);
  void SayNoMore();  // the other side reads the end, and may still send
  void Reset();      // as of a line that is gone: what is under way is lost

  // The next frame that the other side has sent; false at its end.
  struct Frame {
    wire::FrameHeader header;
    std::string body;
  };
  bool Read(Frame& frame);
  std::vector<Frame> ReadAll();  // until the other side closes

 private:
  bool Fill(size_t size);  // reads until `unread_` has so many bytes; false at the end

  int fd_ = -1;
  std::string unread_;
};

}  // namespace gradwire::faults
