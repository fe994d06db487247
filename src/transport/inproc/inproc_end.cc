#include "transport/inproc/inproc_end.h"

#include <cstring>
#include <utility>

#include "base/log.h"

namespace gradwire::transport {

InprocEnd::InprocEnd(std::shared_ptr<Executor> executor, std::string description)
    : executor_(std::move(executor)), description_(std::move(description)) {}

InprocEnd::~InprocEnd() {
  if (!out_) return;
  out_->Abort();
  in_->Drop();
}

void InprocEnd::Join(const std::shared_ptr<InprocEnd>& one, const std::shared_ptr<InprocEnd>& other,
                     const std::shared_ptr<InprocTiming>& timing) {
  one->out_ = other->in_ = std::make_shared<InprocLine>(one, other, one->executor_, timing);
  other->out_ = one->in_ = std::make_shared<InprocLine>(other, one, other->executor_, timing);
}

void InprocEnd::Start(std::shared_ptr<Receiver> receiver, std::shared_ptr<FrameSource> source) {
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
  out_->Open(std::move(source));
  Schedule();
}

void InprocEnd::Close(Failure reason) {
  {
    std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    reason_ = std::move(reason);
  }
  out_->Finish();
}

void InprocEnd::Abort(Failure reason) {
  {
    std::lock_guard lock(mutex_);
    if (!closing_) reason_ = std::move(reason);
    closing_ = true;
  }
  out_->Abort();
  Schedule();
}

// A line is asked under this lock, and never calls an end under its own.
bool InprocEnd::HasWorkLocked() const {
  if (ended_) return false;
  if (closing_) return out_->is_shut();
  return receiver_ && in_->has_arrived();
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
  bool closing = false;
  {
    std::lock_guard lock(mutex_);
    closing = closing_;
  }
  if (!closing) {
    if (auto frame = in_->Pop()) {
      Deliver(*frame);
      in_->Return(*std::exchange(frame, std::nullopt));
    } else if (const auto why = in_->end()) {
      Abort({.code = ErrorCode::kDisconnected, .text = description_ + ": " + *why});
    }
  }
  bool over = false;
  {
    std::lock_guard lock(mutex_);
    over = closing_ && out_->is_shut();
    if (!over) scheduled_ = false;
  }
  if (over) return EndWithRole();
  Schedule();
}

void InprocEnd::Deliver(const OutFrame& frame) {
  Failure failure;
  try {
    const wire::FrameHeader header = wire::DecodeHeader(frame.head.data());
    const uint32_t limit = body_limit_.load(std::memory_order_relaxed);
    if (header.body_size > limit) {
      throw Error(ErrorCode::kInvalid, "a frame announces a body of " + std::to_string(header.body_size) +
                                           " bytes where " + std::to_string(limit) + " are allowed");
    }
    std::string body;
    body.reserve(header.body_size);
    body.append(frame.head.data() + wire::FrameHeader::kSize, frame.head_size - wire::FrameHeader::kSize);
    body.append(frame.body);
    if (header.bulk_size > 0) {
      std::byte* const target = receiver_->BulkTarget(header, body);
      if (target) std::memcpy(target, frame.bulk.data, frame.bulk.size);
    }
    return receiver_->OnFrame(header, std::move(body));
  } catch (const Error& error) {
    failure = error.failure();
    // No other code of a receiver's may pass for an end of the line.
    if (failure.code != ErrorCode::kInvalid) failure.code = ErrorCode::kInternal;
  } catch (const std::exception& error) {
    failure.text = error.what();
  }
  failure.text = description_ + ": " + failure.text;
  Log(LogLevel::kWarning, failure.text + "; connection closed");
  Abort(std::move(failure));
}

void InprocEnd::EndWithRole() {
  std::shared_ptr<Receiver> receiver;
  std::shared_ptr<InprocEnd> self;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    scheduled_ = false;
    receiver = std::move(receiver_);
    self = std::move(self_);
  }
  in_->Drop();
  if (receiver) receiver->OnClosed(reason_);
  ended_event_.Set();
}

}  // namespace gradwire::transport
