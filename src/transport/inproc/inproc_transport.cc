#include "transport/inproc/inproc_transport.h"

#include <utility>

#include "transport/inproc/inproc_connect.h"
#include "transport/inproc/inproc_listener.h"

namespace gradwire::transport {

InprocTransport::InprocTransport(InprocNetwork& network, std::shared_ptr<Executor> executor)
    : network_(network.state_), state_(std::make_shared<InprocListener>(std::move(executor))) {}

InprocTransport::~InprocTransport() { Stop(); }

std::string InprocTransport::Listen(AcceptCallback accept) {
  state_->SetAccept(std::move(accept));
  return address_ = network_->Add(state_);
}

void InprocTransport::Connect(const std::string& address, TimePoint limit, ConnectCallback callback) {
  const auto attempt = std::make_shared<InprocConnect>(network_, state_, address_, address, limit, std::move(callback));
  if (!state_->Keep(attempt)) return attempt->Fail(ErrorCode::kUnreachable, "this side has stopped");
  attempt->Start();
}

void InprocTransport::Stop() {
  if (!address_.empty()) network_->Remove(std::exchange(address_, ""));
  state_->Stop();
}

}  // namespace gradwire::transport
