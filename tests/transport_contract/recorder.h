// Recorder: a receiver that keeps what it is told and checks that it is told so by the contract.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/event.h"
#include "transport/transport.h"

namespace gradwire::transport {

// Generous: only a test that fails waits as long.
constexpr std::chrono::seconds kPatience{60};

struct Received {
  wire::FrameHeader header;
  std::string body;
  std::vector<std::byte> bulk;

  uint64_t number() const { return header.kind == wire::FrameKind::kBulk ? std::stoull(body) : header.number; }
};

class Recorder : public Receiver {
 public:
  // Called in OnFrame, before the frame is kept; may throw.
  using Hook = std::function<void(const wire::FrameHeader&, const std::string& body)>;
  explicit Recorder(Hook hook = {}) : hook_(std::move(hook)) {}
  ~Recorder() override { EXPECT_LE(closings_, 1); }

  bool wants_no_bulk = false;  // constant once started

  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view) override {
    const Alone alone(*this);
    if (wants_no_bulk) return nullptr;
    bulk_.resize(header.bulk_size);
    return bulk_.data();
  }

  void OnFrame(const wire::FrameHeader& header, std::string body) override {
    const Alone alone(*this);
    EXPECT_EQ(bulk_.size(), wants_no_bulk ? 0 : header.bulk_size);
    EXPECT_EQ(body.size(), header.body_size);
    if (hook_) hook_(header, body);
    std::lock_guard lock(mutex_);
    frames_.push_back({header, std::move(body), std::exchange(bulk_, {})});
    changed_.notify_all();
  }

  void OnClosed(const Failure& reason) override {
    const Alone alone(*this);
    reason_ = reason;
    ++closings_;
    EXPECT_EQ(closings_, 1);
    closed_.Set();
  }

  bool WaitForFrames(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return frames_.size() >= count; });
  }
  bool WaitForClosed() { return closed_.Wait(kPatience); }
  bool is_closed() const { return closed_.is_set(); }
  const Failure& reason() const { return reason_; }  // after WaitForClosed()
  int calls() const { return calls_; }

  std::vector<Received> TakeFrames() {
    std::lock_guard lock(mutex_);
    return std::exchange(frames_, {});
  }

 private:
  // O1: one call after another, and none after OnClosed.
  struct Alone {
    explicit Alone(Recorder& recorder) : recorder(recorder) {
      EXPECT_FALSE(recorder.inside_.exchange(true)) << "two threads in one receiver";
      EXPECT_FALSE(recorder.is_closed()) << "a call after OnClosed";
      ++recorder.calls_;
    }
    ~Alone() { recorder.inside_ = false; }
    Recorder& recorder;
  };

  const Hook hook_;
  std::atomic<bool> inside_{false};
  std::atomic<int> calls_{0};
  std::vector<std::byte> bulk_;  // of the frame that arrives; the read role's
  int closings_ = 0;
  Failure reason_;
  Event closed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Received> frames_;
};

inline OutFrame MakeRequest(uint64_t number, std::string body) {
  return MakeFrame({.kind = wire::FrameKind::kRequest, .number = number}, std::move(body));
}

// Such a frame is not numbered; its body says which one it is.
inline OutFrame MakeBulk(uint64_t number, const std::shared_ptr<const std::vector<std::byte>>& bulk) {
  OutFrame frame = MakeFrame({.kind = wire::FrameKind::kBulk, .bulk_size = bulk->size()}, std::to_string(number));
  frame.bulk = {.data = bulk->data(), .size = bulk->size(), .keep = bulk};
  return frame;
}

// Bytes that tell where they belong.
inline std::shared_ptr<const std::vector<std::byte>> MakeBytes(size_t size, uint64_t seed) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  uint64_t state = seed * 2 + 1;
  for (std::byte& byte : *bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

}  // namespace gradwire::transport
