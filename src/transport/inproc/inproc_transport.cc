#include "transport/inproc/inproc_transport.h"

#include <utility>

#include "transport/inproc/inproc_listener.h"

namespace gradwire::transport {

InprocTransport::InprocTransport(InprocNetwork& network, std::shared_ptr<Executor> executor)
    : network_(network.state_), state_(std::make_shared<InprocListener>(std::move(executor))) {}

InprocTransport::~InprocTransport() { Stop(); }

std::string InprocTransport::Listen(AcceptCallback accept) {
  state_->SetAccept(std::move(accept));
  return address_ = network_->Add(state_);
}

void InprocTransport::Connect(const std::string& address, TimePoint, ConnectCallback callback) {
  const auto shared = std::make_shared<ConnectCallback>(std::move(callback));
  const auto fail = [shared, address](const std::string& why) {
    (*shared)(nullptr, {.code = ErrorCode::kUnreachable, .text = address + ": " + why});
  };
  const bool posted = state_->PostCallback([shared, fail, address, network = network_, here = state_] {
    const auto there = network->Find(address);
    if (!there) return fail("nobody listens there");
    const auto near = here->MakeEnd("inproc to " + address);
    const auto far = there->MakeEnd("inproc at " + address);
    if (!near || !far) return fail("one of the two sides has stopped");
    InprocEnd::Join(near, far);
    network->AddEnds(address, {near, far});
    there->PostCallback([there, far] { there->Accept(far); });
    (*shared)(near, {});
  });
  if (!posted) fail("this side has stopped");
}

void InprocTransport::Stop() {
  if (!address_.empty()) network_->Remove(std::exchange(address_, ""));
  state_->Stop();
}

}  // namespace gradwire::transport
