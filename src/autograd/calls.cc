#include "autograd/calls.h"

#include <utility>

#include "rpc/rpc.h"

namespace gradwire::autograd {
namespace {

class CallsOverRpc final : public Calls {
 public:
  explicit CallsOverRpc(std::shared_ptr<rpc::Rpc> rpc) : rpc_(std::move(rpc)) {}

  const rpc::Peer& self() const override { return rpc_->self(); }
  Executor& executor() override { return *rpc_->executor(); }

  void Send(WorkerId to, const std::string& function, Payload args, Completion done) override {
    // Shared, since the call layer keeps what it was given when it throws.
    auto shared = std::make_shared<Completion>(std::move(done));
    rpc::Call call;
    call.to = to;
    call.function = function;
    call.args = std::move(args);
    call.options.timeout = std::chrono::milliseconds(0);
    call.internal = true;
    try {
      rpc_->Send(std::move(call), [shared](Outcome outcome) { (*shared)(std::move(outcome)); });
    } catch (const Error& error) {
      executor().Post([shared, failure = error.failure()] { (*shared)(failure); });
    }
  }

  std::optional<WorkerId> Ranked(uint32_t rank) const override {
    try {
      return rpc_->members().Ranked(rank).id;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void Notify(WorkerId to, const std::string& function, Payload args) override {
    rpc_->Notify(to, function, std::move(args));
  }

 private:
  const std::shared_ptr<rpc::Rpc> rpc_;
};

}  // namespace

std::shared_ptr<Calls> CallsOver(std::shared_ptr<rpc::Rpc> rpc) {
  return std::make_shared<CallsOverRpc>(std::move(rpc));
}

}  // namespace gradwire::autograd
