// InprocListener: what an InprocTransport's ends and callbacks share with it: who is open, what is still to be called.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/executor.h"
#include "transport/inproc/inproc_end.h"
#include "transport/transport.h"

namespace gradwire::transport {

class InprocListener : public std::enable_shared_from_this<InprocListener> {
 public:
  explicit InprocListener(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // A new end that runs here. nullptr when stopped.
  std::shared_ptr<InprocEnd> MakeEnd(const std::string& description);
  // Runs a callback on the executor; Stop() waits for it. False when stopped: it will not run.
  bool PostCallback(Task task);

  void SetAccept(Transport::AcceptCallback accept);
  void Accept(std::shared_ptr<InprocEnd> end);

  bool stopped() const;
  void Stop();

 private:
  const std::shared_ptr<Executor> executor_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  Transport::AcceptCallback accept_;
  std::vector<std::weak_ptr<InprocEnd>> ends_;
  std::vector<std::shared_ptr<Event>> callbacks_;  // set when one has run or was dropped
};

}  // namespace gradwire::transport
