// InprocListener: what an InprocTransport shares with its ends, attempts to connect and callbacks: who is open, what is
// still to be called.
#pragma once

#include <map>
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

class InprocConnect;

class InprocListener : public std::enable_shared_from_this<InprocListener> {
 public:
  explicit InprocListener(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}

  // A new end that runs here. nullptr when stopped.
  std::shared_ptr<InprocEnd> MakeEnd(const std::string& description);
  // Runs a callback on the executor; Stop() waits for it. False when stopped: it will not run.
  bool PostCallback(Task task);

  // Keeps an attempt until Forget(), for Stop() to fail it. False when stopped.
  bool Keep(const std::shared_ptr<InprocConnect>& attempt);
  void Forget(const InprocConnect& attempt);

  void SetAccept(Transport::AcceptCallback accept);
  void Accept(std::shared_ptr<InprocEnd> end);

  void Stop();

 private:
  const std::shared_ptr<Executor> executor_;
  std::mutex mutex_;  // guards:
  bool stopped_ = false;
  Transport::AcceptCallback accept_;
  std::vector<std::weak_ptr<InprocEnd>> ends_;
  std::map<const InprocConnect*, std::shared_ptr<InprocConnect>> attempts_;
  std::vector<std::shared_ptr<Event>> callbacks_;  // set when one has run or was dropped
};

}  // namespace gradwire::transport
