// InprocTransport: connections inside one process, as tasks of an executor. For a worker's calls to itself, for tests,
// and, with the executor of the simulation, for whole groups in one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/executor.h"
#include "transport/inproc/inproc_network.h"
#include "transport/transport.h"

namespace gradwire::transport {

// All callbacks and receivers run on the executor. What is pulled waits by reference, and no bytes are copied but into
// their place at the receiver.
class InprocTransport final : public Transport {
 public:
  InprocTransport(InprocNetwork& network, std::shared_ptr<Executor> executor);
  ~InprocTransport() override;  // Stop()

  std::string_view scheme() const override { return "inproc"; }
  std::string Listen(AcceptCallback accept) override;
  // `limit` is a time of the network's clock; without one nothing is waited for.
  void Connect(const std::string& address, TimePoint limit, ConnectCallback callback) override;
  // Waits by the executor's Await(): in simulation, tasks run inside.
  void Stop() override;
  const std::string& address() const { return address_; }  // empty: not listening

 private:
  const std::shared_ptr<InprocNetwork::State> network_;
  const std::shared_ptr<InprocListener> state_;
  std::string address_;
};

}  // namespace gradwire::transport
