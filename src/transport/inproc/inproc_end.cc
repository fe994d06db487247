#include "transport/inproc/inproc_end.h"

#include <cstring>
#include <utility>

#include "base/log.h"

namespace gradwire::transport {

InprocEnd::InprocEnd(std::shared_ptr<Executor> executor, std::string description)
    : executor_(std::move(executor)), description_(std::move(description)) {}

InprocEnd::~InprocEnd() {
  if (auto other = other_.lock()) other->OnOtherClosed();
}

void InprocEnd::Join(const std::shared_ptr<InprocEnd>& one, const std::shared_ptr<InprocEnd>& other) {
  one->other_ = other;
  other->other_ = one;
}

void InprocEnd::Start(std::shared_ptr<Receiver> receiver) {
  Failure reason;
  {
    std::lock_guard lock(mutex_);
    reason = reason_;
    if (!ended_) {
      receiver_ = std::move(receiver);
      self_ = shared_from_this();
    }
  }
  if (receiver) return receiver->OnClosed(reason);  // ended before it began: nobody else has the read role
  Schedule();
}

void InprocEnd::Queue(OutFrame frame, Lane lane) {
  {
    std::lock_guard lock(mutex_);
    if (closing_) return;
  }
  if (auto other = other_.lock()) other->Accept(std::move(frame), lane);
}

void InprocEnd::Accept(OutFrame frame, Lane lane) {
  std::lock_guard lock(mutex_);  // a dropped frame is freed after unlock, by the caller
  if (!closing_) inbox_[static_cast<size_t>(lane)].push_back(std::move(frame));
}

void InprocEnd::Flush() {
  if (auto other = other_.lock()) other->Schedule();
}

void InprocEnd::Close(Failure reason) {
  {
    std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    reason_ = std::move(reason);
  }
  if (auto other = other_.lock()) other->OnOtherClosed();
  Schedule();
}

void InprocEnd::Cut() {
  std::deque<OutFrame> lost[2];  // freed after unlock
  {
    std::lock_guard lock(mutex_);
    std::swap(lost, inbox_);
    if (!closing_) {
      closing_ = true;
      reason_ = {.code = ErrorCode::kDisconnected, .text = description_ + ": the line was cut"};
    }
  }
  Schedule();
}

void InprocEnd::OnOtherClosed() {
  {
    std::lock_guard lock(mutex_);
    other_closed_ = true;
  }
  Schedule();
}

bool InprocEnd::HasWorkLocked() const {
  if (ended_) return false;
  if (closing_) return true;
  return receiver_ && (!inbox_[0].empty() || !inbox_[1].empty() || other_closed_);
}

void InprocEnd::Schedule() {
  {
    std::lock_guard lock(mutex_);
    if (scheduled_ || !HasWorkLocked()) return;
    scheduled_ = true;
  }
  executor_->Post([self = shared_from_this()] { self->Step(); });
}

void InprocEnd::Step() {
  std::optional<OutFrame> frame;
  {
    std::lock_guard lock(mutex_);
    if (!closing_) {
      std::deque<OutFrame>& lane = inbox_[inbox_[0].empty() ? 1 : 0];  // headers first
      if (lane.empty()) {
        closing_ = true;
        reason_ = {.code = ErrorCode::kDisconnected, .text = description_ + ": the other side closed the connection"};
      } else {
        frame = std::move(lane.front());
        lane.pop_front();
      }
    }
  }
  if (!frame) return EndWithRole();
  Deliver(*std::exchange(frame, std::nullopt));
  {
    std::lock_guard lock(mutex_);
    scheduled_ = false;
  }
  Schedule();
}

void InprocEnd::Deliver(OutFrame frame) {
  Failure failure;
  try {
    const wire::FrameHeader header = wire::DecodeHeader(frame.bytes.data());
    const uint32_t limit = body_limit_.load(std::memory_order_relaxed);
    if (header.body_size > limit) {
      throw Error(ErrorCode::kInvalid, "a frame announces a body of " + std::to_string(header.body_size) +
                                           " bytes where " + std::to_string(limit) + " are allowed");
    }
    std::string body = frame.bytes.substr(wire::FrameHeader::kSize);
    if (header.bulk_size > 0) {
      std::byte* const target = receiver_->BulkTarget(header, body);
      if (!target) throw Error(ErrorCode::kInvalid, "bulk bytes that nobody awaits");
      std::memcpy(target, frame.bulk.data, frame.bulk.size);
    }
    return receiver_->OnFrame(header, std::move(body));
  } catch (const Error& error) {
    failure = error.failure();
  } catch (const std::exception& error) {
    failure.text = error.what();
  }
  failure.text = description_ + ": " + failure.text;
  Log(LogLevel::kWarning, failure.text + "; connection closed");
  Close(std::move(failure));
}

void InprocEnd::EndWithRole() {
  std::deque<OutFrame> dropped[2];  // freed after unlock
  std::shared_ptr<Receiver> receiver;
  std::shared_ptr<InprocEnd> self;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    scheduled_ = false;
    std::swap(dropped, inbox_);
    receiver = std::move(receiver_);
    self = std::move(self_);
  }
  if (auto other = other_.lock()) other->OnOtherClosed();
  if (receiver) receiver->OnClosed(reason_);
  ended_event_.Set();
}

}  // namespace gradwire::transport
