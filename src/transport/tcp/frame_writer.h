// FrameWriter: pulls frames from the source of one connection and writes them into its socket. The write role (O1).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/transport.h"
#include "transport/write_role.h"

namespace gradwire::transport {

// Who is told that it has the write role calls Write() again and again until it no longer returns kGoOn. Everything but
// Write() may be called by any thread.
class FrameWriter {
 public:
  enum class Progress {
    kGoOn,      // there may be more; the role is still this thread's, which may hand it to another
    kIdle,      // all is written, or nothing may be written any more; the role is free
    kFinished,  // all is written after Finish(), and nothing more will be
    kFull,      // the socket takes no more now; the role is not to be had until OnWritable()
    kBroken,    // the socket is broken: write_errno()
    kEnded,     // End() came meanwhile, and leaves it to this thread to close the socket
  };

  FrameWriter() = default;
  ~FrameWriter() { LetGo(); }
  FrameWriter(const FrameWriter&) = delete;

  // Before the first OnWritable(), which begins the writing. Once, not after End().
  void Open(std::shared_ptr<FrameSource> source) { source_ = std::move(source); }

  // The source has frames; the socket takes more. True: the caller has the write role now.
  bool Wake() { return role_.Wake(); }
  bool OnWritable() { return role_.OnRoom(); }
  // The same as Wake(); what the source gives from now on, until it gives none, is the last.
  bool Finish();

  // REQUIRES: this thread has the write role. One system call, several frames.
  Progress Write(int fd);
  int write_errno() const { return write_errno_; }  // after kBroken

  // Nothing more is pulled, nor written but for a system call that has begun.
  void Abort() { aborted_.store(true, std::memory_order_relaxed); }
  // The same, for ever. True: nobody writes, so the socket may be closed; false: the writer will be told kEnded. Once.
  bool End();

 private:
  Progress GiveBackForGood(Progress progress);
  Progress Ended();
  void Advance(size_t written);
  void LetGo();

  WriteRole role_;
  std::atomic<bool> finishing_{false};
  std::atomic<bool> aborted_{false};

  // The write role's own.
  std::shared_ptr<FrameSource> source_;
  std::vector<OutFrame> frames_;  // what is being written
  size_t first_ = 0;              // frames before it are written
  size_t offset_ = 0;             // bytes of the first that are written
  bool done_ = false;             // nothing more is to be written
  int write_errno_ = 0;
};

}  // namespace gradwire::transport
