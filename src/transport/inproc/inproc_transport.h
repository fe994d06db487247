// InprocTransport: connections inside one process, for calls to oneself and for simulation. Frames are copied as on any
// line, and delivered by tasks of an executor, one after another for each direction: such a task is the read role.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/executor.h"
#include "transport/transport.h"

namespace gradwire::transport {

class InprocConnection;
class InprocTransport;

// The addresses that can reach each other. Outlives its transports.
class InprocNetwork {
 public:
  InprocNetwork() = default;
  InprocNetwork(const InprocNetwork&) = delete;

  // Breaks all connections that were made to this address; it can be connected to again.
  void Cut(const std::string& address);

 private:
  friend class InprocTransport;
  std::mutex mutex_;
  int last_address_ = 0;
  std::map<std::string, InprocTransport*> listening_;
};

class InprocTransport final : public Transport {
 public:
  InprocTransport(InprocNetwork& network, std::shared_ptr<Executor> executor);
  ~InprocTransport() override;

  std::string_view scheme() const override { return "inproc"; }
  std::string Listen(AcceptCallback accept) override;
  void Connect(const std::string& address, TimePoint limit, ConnectCallback callback) override;
  void Stop() override;

 private:
  friend class InprocNetwork;
  struct State;

  InprocNetwork& network_;
  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<State> state_;
  std::string address_;  // guarded by the network's mutex
};

}  // namespace gradwire::transport
