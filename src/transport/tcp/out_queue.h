// OutQueue: frames on their way into a socket, and who writes them. The write role of one connection (O1).
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "transport/transport.h"

namespace gradwire::transport {

// Who takes the write role calls Write() again and again until it no longer returns kGoOn. Everything but Write() may
// be called by any thread.
class OutQueue {
 public:
  enum class Progress {
    kGoOn,     // more to write; the role is still this thread's, which may hand it to another
    kEmpty,    // all written; the role is free
    kFull,     // the socket takes no more now; the role is free, but not to be had until OnWritable()
    kBroken,   // the socket is broken: write_errno(); the role is free
    kStopped,  // Stop() came meanwhile; the role is free
  };

  void Push(OutFrame frame, Lane lane);  // drops it when stopped

  // True: the caller has the write role now and must Write(). Only one thread gets it, and none while the line is full.
  bool TakeRole();
  // The socket may take more: the same answer, for whoever waits for the socket.
  bool OnWritable();

  // REQUIRES: this thread has the write role. One system call, several frames.
  Progress Write(int fd);
  int write_errno() const { return write_errno_; }

  // Drops all frames, now and later. True: nobody writes, so the socket may be closed; false: the writer's Write() will
  // return kStopped, and the writer closes it.
  bool Stop();

 private:
  // What is being written, from the first unwritten byte on.
  struct Batch {
    std::vector<OutFrame> frames;
    size_t first = 0;   // frames before it are written and freed
    size_t offset = 0;  // bytes of the first that are written
    bool empty() const { return first == frames.size(); }
    void Advance(size_t written);
  };
  static size_t SizeOf(const OutFrame& frame) { return frame.bytes.size() + frame.bulk.size; }
  void FillBatchLocked();
  Progress Refused(int error);
  Progress StoppedLocked();

  std::mutex mutex_;
  std::deque<OutFrame> lanes_[2];  // by Lane
  bool writing_ = false;           // some thread has the role
  bool full_ = false;              // the role waits for the socket
  bool stopped_ = false;

  // The write role's own.
  Batch batch_;
  int write_errno_ = 0;
};

}  // namespace gradwire::transport
