// InprocEnd: one side of an in-process connection, between two lines. A strand of executor tasks, one frame each, is
// its read role.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/event.h"
#include "base/executor.h"
#include "transport/inproc/inproc_line.h"
#include "transport/transport.h"

namespace gradwire::transport {

class InprocEnd final : public Connection, public std::enable_shared_from_this<InprocEnd> {
 public:
  // `executor` runs this end's receiver.
  InprocEnd(std::shared_ptr<Executor> executor, std::string description);
  ~InprocEnd() override;
  static void Join(const std::shared_ptr<InprocEnd>& one, const std::shared_ptr<InprocEnd>& other,
                   const std::shared_ptr<InprocTiming>& timing);

  void Start(std::shared_ptr<Receiver> receiver, std::shared_ptr<FrameSource> source) override;
  void Wake() override { out_->Wake(); }
  void Close(Failure reason) override;
  void Abort(Failure reason) override;
  void SetBodyLimit(uint32_t bytes) override { body_limit_.store(bytes, std::memory_order_relaxed); }
  std::string description() const override { return description_; }

  // Has the next step run when there is something to do and none is on its way. Not under a lock of a line.
  void Schedule();
  // Set after OnClosed() has returned.
  Event& ended() { return ended_event_; }
  const std::shared_ptr<InprocLine>& out() const { return out_; }

 private:
  bool HasWorkLocked() const;
  void Step();
  void Deliver(const OutFrame& frame);
  void EndWithRole();

  const std::shared_ptr<Executor> executor_;
  const std::string description_;
  std::shared_ptr<InprocLine> out_, in_;  // constant after Join()
  std::atomic<uint32_t> body_limit_{kBodyBeforeHandshake};
  Event ended_event_;

  std::mutex mutex_;        // guards:
  bool scheduled_ = false;  // a step is on its way or runs: the read role is taken
  bool closing_ = false;    // Close() or Abort() was called, or nothing more will come
  bool ended_ = false;
  Failure reason_;
  std::shared_ptr<Receiver> receiver_;
  std::shared_ptr<InprocEnd> self_;  // from Start() to the end: the receiver must be told of it
};

}  // namespace gradwire::transport
