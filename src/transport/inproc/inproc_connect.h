// InprocConnect: one attempt of an InprocTransport to connect, from its request to its callback.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "transport/inproc/inproc_network.h"
#include "transport/transport.h"

namespace gradwire::transport {

// Any thread. Its listener keeps it until its callback has been called.
class InprocConnect : public std::enable_shared_from_this<InprocConnect> {
 public:
  // `from`: the address that `here` listens at, or empty.
  InprocConnect(std::shared_ptr<InprocNetwork::State> network, std::shared_ptr<InprocListener> here, std::string from,
                std::string to, TimePoint limit, Transport::ConnectCallback callback);

  void Start();
  // Calls back on this thread, unless that has been done.
  void Fail(ErrorCode code, const std::string& why);

 private:
  void Arrive();
  void Answer(std::shared_ptr<InprocEnd> near);
  void PostFail(ErrorCode code, const std::string& why);
  Transport::ConnectCallback Take();  // empty the second time

  const std::shared_ptr<InprocNetwork::State> network_;
  const std::shared_ptr<InprocListener> here_;
  const std::string from_, to_;
  const TimePoint limit_;

  std::mutex mutex_;  // guards:
  Transport::ConnectCallback callback_;
  TimerId limit_timer_ = 0;
};

}  // namespace gradwire::transport
