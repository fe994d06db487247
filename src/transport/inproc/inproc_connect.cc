#include "transport/inproc/inproc_connect.h"

#include <utility>

#include "transport/inproc/inproc_end.h"
#include "transport/inproc/inproc_listener.h"
#include "transport/inproc/inproc_timing.h"

namespace gradwire::transport {

InprocConnect::InprocConnect(std::shared_ptr<InprocNetwork::State> network, std::shared_ptr<InprocListener> here,
                             std::string from, std::string to, TimePoint limit, Transport::ConnectCallback callback)
    : network_(std::move(network)),
      here_(std::move(here)),
      from_(std::move(from)),
      to_(std::move(to)),
      limit_(limit),
      callback_(std::move(callback)) {}

void InprocConnect::Start() {
  const auto self = shared_from_this();
  if (!to_.starts_with("inproc://")) return PostFail(ErrorCode::kInvalid, "not an in-process address");
  InprocTiming* const timing = network_->timing.get();
  if (!timing) {
    here_->PostCallback([self] { self->Arrive(); });
    return;
  }
  {
    std::lock_guard lock(mutex_);
    limit_timer_ = timing->clock().CallAt(
        limit_, [self] { self->PostFail(ErrorCode::kUnreachable, "no answer within the time allowed"); });
  }
  timing->clock().CallAt(timing->Arrival(), [self] { self->Arrive(); });
}

// The request is at the other side.
void InprocConnect::Arrive() {
  if (network_->AreParted(from_, to_)) {
    if (!network_->timing) Fail(ErrorCode::kUnreachable, "the way there is interrupted");
    return;  // else the limit ends it
  }
  const auto there = network_->Find(from_, to_);
  const auto far = there ? there->MakeEnd("inproc at " + to_) : nullptr;
  if (!far) return PostFail(ErrorCode::kDisconnected, "nobody listens there");
  const auto near = here_->MakeEnd("inproc to " + to_);
  if (!near) return;  // this side has stopped, which fails this attempt
  InprocEnd::Join(near, far, network_->timing);
  network_->AddConnection(from_, to_, *near, *far);
  there->PostCallback([there, far] { there->Accept(far); });
  if (!network_->timing) return Answer(near);
  network_->timing->clock().CallAt(network_->timing->Arrival(), [self = shared_from_this(), near] {
    self->here_->PostCallback([self, near] { self->Answer(near); });
  });
}

// After the limit the end goes, and the other side learns of it.
void InprocConnect::Answer(std::shared_ptr<InprocEnd> near) {
  if (auto callback = Take()) callback(std::move(near), {});
}

void InprocConnect::PostFail(ErrorCode code, const std::string& why) {
  here_->PostCallback([self = shared_from_this(), code, why] { self->Fail(code, why); });
}

void InprocConnect::Fail(ErrorCode code, const std::string& why) {
  if (auto callback = Take()) callback(nullptr, {.code = code, .text = to_ + ": " + why});
}

Transport::ConnectCallback InprocConnect::Take() {
  Transport::ConnectCallback callback;
  TimerId timer = 0;
  {
    std::lock_guard lock(mutex_);
    callback = std::exchange(callback_, nullptr);
    timer = std::exchange(limit_timer_, 0);
  }
  if (timer) network_->timing->clock().Cancel(timer);
  here_->Forget(*this);
  return callback;
}

}  // namespace gradwire::transport
