// The transports under test.
#include <vector>

#include "base/loop.h"
#include "base/thread_pool.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

class TcpWiring : public Wiring {
 public:
  std::unique_ptr<Transport> Make() override {
    loops_.push_back(std::make_unique<Loop>());
    return std::make_unique<TcpTransport>(*loops_.back());
  }
  // A port that nobody can be given: it belongs to another service and needs rights to be bound.
  std::string nobody() const override { return "tcp://127.0.0.1:1"; }

 private:
  std::vector<std::unique_ptr<Loop>> loops_;
};

class InprocWiring : public Wiring {
 public:
  explicit InprocWiring(std::shared_ptr<Loop> clock = nullptr)
      : clock_(std::move(clock)), network_({.clock = clock_, .most = std::chrono::microseconds(50)}) {}
  ~InprocWiring() override {
    for (const auto& pool : pools_) pool->Stop();
    if (clock_) clock_->Stop();
  }
  std::unique_ptr<Transport> Make() override {
    pools_.push_back(std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = 3}));
    return std::make_unique<InprocTransport>(network_, pools_.back());
  }
  std::string nobody() const override { return "inproc://4711"; }

 private:
  const std::shared_ptr<Loop> clock_;
  InprocNetwork network_;
  std::vector<std::shared_ptr<ThreadPool>> pools_;
};

}  // namespace

std::unique_ptr<Wiring> MakeTcpWiring() { return std::make_unique<TcpWiring>(); }
std::unique_ptr<Wiring> MakeInprocWiring() { return std::make_unique<InprocWiring>(); }
std::unique_ptr<Wiring> MakeSlowInprocWiring() { return std::make_unique<InprocWiring>(std::make_shared<Loop>()); }

}  // namespace gradwire::transport
