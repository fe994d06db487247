// QueueSource: a source that gives what was put into it, in order, and checks that it is used by the contract.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport_contract/recorder.h"

namespace gradwire::transport {

class QueueSource : public FrameSource {
 public:
  ~QueueSource() override { EXPECT_EQ(given_, released_) << "each frame is released once"; }

  void Put(OutFrame frame) {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(frame));
  }
  // Before all that waits.
  void PutFirst(OutFrame frame) {
    std::lock_guard lock(mutex_);
    waiting_.push_front(std::move(frame));
  }

  void Next(size_t budget, std::vector<OutFrame>& frames) override {
    const Alone alone(*this);
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(frames.empty());
    smallest_budget_ = std::min(smallest_budget_, budget);
    largest_budget_ = std::max(largest_budget_, budget);
    changed_.notify_all();
    for (size_t bytes = 0; bytes < budget && !waiting_.empty(); ++given_) {
      bytes += waiting_.front().size();
      frames.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  // The frames end before anybody learns that they were released: a test looks then whether their memory is gone.
  void Release(std::vector<OutFrame>& frames) override {
    const Alone alone(*this);
    EXPECT_FALSE(frames.empty());
    std::vector<uint64_t> numbers;
    for (const OutFrame& frame : frames) {
      EXPECT_GE(frame.head_size, wire::FrameHeader::kSize) << "a frame that was moved from";
      numbers.push_back(NumberOf(frame));
    }
    std::exchange(frames, {}).clear();
    std::lock_guard lock(mutex_);
    released_ += numbers.size();
    EXPECT_LE(released_, given_);
    released_numbers_.insert(released_numbers_.end(), numbers.begin(), numbers.end());
    changed_.notify_all();
  }

  static uint64_t NumberOf(const OutFrame& frame) {
    const wire::FrameHeader header = wire::DecodeHeader(frame.head.data());
    if (header.kind != wire::FrameKind::kBulk) return header.number;
    return std::stoull(std::string(frame.head.data() + wire::FrameHeader::kSize, header.body_size));
  }

  size_t given() const {
    std::lock_guard lock(mutex_);
    return given_;
  }
  size_t smallest_budget() const {
    std::lock_guard lock(mutex_);
    return smallest_budget_;
  }
  size_t largest_budget() const {
    std::lock_guard lock(mutex_);
    return largest_budget_;
  }
  bool WaitForGiven(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return given_ >= count; });
  }
  bool WaitForReleased(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return released_ >= count; });
  }
  std::vector<uint64_t> released_numbers() const {
    std::lock_guard lock(mutex_);
    return released_numbers_;
  }

 private:
  // One call of Next() and Release() after another: the write role.
  struct Alone {
    explicit Alone(QueueSource& source) : source(source) {
      EXPECT_FALSE(source.inside_.exchange(true)) << "two threads in one source";
    }
    ~Alone() { source.inside_ = false; }
    QueueSource& source;
  };

  std::atomic<bool> inside_{false};
  mutable std::mutex mutex_;  // guards:
  std::condition_variable changed_;
  std::deque<OutFrame> waiting_;
  std::vector<uint64_t> released_numbers_;
  size_t given_ = 0, released_ = 0;
  size_t smallest_budget_ = SIZE_MAX, largest_budget_ = 0;
};

}  // namespace gradwire::transport
