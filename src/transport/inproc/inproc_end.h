// InprocEnd: one side of an in-process connection. Frames wait in the receiving end's inbox; a strand of executor
// tasks, one frame each, is its read role.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/event.h"
#include "base/executor.h"
#include "transport/transport.h"

namespace gradwire::transport {

class InprocEnd final : public Connection, public std::enable_shared_from_this<InprocEnd> {
 public:
  // `executor` runs this end's receiver.
  InprocEnd(std::shared_ptr<Executor> executor, std::string description);
  ~InprocEnd() override;
  static void Join(const std::shared_ptr<InprocEnd>& one, const std::shared_ptr<InprocEnd>& other);

  void Start(std::shared_ptr<Receiver> receiver) override;
  void Queue(OutFrame frame, Lane lane) override;
  void Flush() override;
  void Close(Failure reason) override;
  void SetBodyLimit(uint32_t bytes) override { body_limit_.store(bytes, std::memory_order_relaxed); }
  std::string description() const override { return description_; }

  // The line breaks: what waits in the inbox is lost. Any thread; the other end is cut by its own call.
  void Cut();
  // Set after OnClosed() has returned.
  Event& ended() { return ended_event_; }

 private:
  void Accept(OutFrame frame, Lane lane);
  void OnOtherClosed();
  // Has the next step run when there is something to do and none is on its way.
  void Schedule();
  bool HasWorkLocked() const;
  void Step();
  void Deliver(OutFrame frame);
  void EndWithRole();

  const std::shared_ptr<Executor> executor_;
  const std::string description_;
  std::weak_ptr<InprocEnd> other_;  // constant after Join()
  std::atomic<uint32_t> body_limit_{kBodyBeforeHandshake};
  Event ended_event_;

  std::mutex mutex_;               // guards:
  std::deque<OutFrame> inbox_[2];  // by Lane
  bool scheduled_ = false;         // a step is on its way or runs: the read role is taken
  bool other_closed_ = false;      // nothing more will come
  bool closing_ = false;           // Close() or Cut() was called, or the inbox is used up after other_closed_
  bool ended_ = false;
  Failure reason_;
  std::shared_ptr<Receiver> receiver_;
  std::shared_ptr<InprocEnd> self_;  // from Start() to the end: the receiver must be told of it
};

}  // namespace gradwire::transport
