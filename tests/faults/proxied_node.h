// A worker whose peers reach it through a proxy over TCP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/loop.h"
#include "base/thread_pool.h"
#include "faults/cutting_proxy.h"
#include "gradwire/worker.h"
#include "transport/tcp/tcp_transport.h"
#include "worker/parts.h"

namespace gradwire::faults {

// TCP whose published address is that of a proxy.
class ProxiedTransport final : public transport::Transport {
 public:
  ProxiedTransport(Loop& loop, uint64_t seed) : tcp_(loop), seed_(seed) {}
  std::string_view scheme() const override { return "tcp"; }
  std::string Listen(AcceptCallback accept) override {
    proxy_ = std::make_unique<CuttingProxy>(tcp_.Listen(std::move(accept)), seed_);
    return proxy_->address();
  }
  void Connect(const std::string& address, TimePoint limit, ConnectCallback callback) override {
    tcp_.Connect(address, limit, std::move(callback));
  }
  void Stop() override { tcp_.Stop(); }
  CuttingProxy& proxy() { return *proxy_; }

 private:
  transport::TcpTransport tcp_;
  const uint64_t seed_;
  std::unique_ptr<CuttingProxy> proxy_;
};

struct ProxiedNode {
  explicit ProxiedNode(uint64_t seed) {
    loop = std::make_shared<Loop>();
    transport = std::make_shared<ProxiedTransport>(*loop, seed);
    parts = std::make_shared<WorkerParts>();
    parts->clock = loop;
    parts->executor = pool = std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = 4});
    parts->transports = {transport};
  }
  ~ProxiedNode() {
    worker.reset();
    transport->Stop();
    pool->Stop();
    loop->Stop();
  }
  std::shared_ptr<Loop> loop;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<ProxiedTransport> transport;
  std::shared_ptr<WorkerParts> parts;
  std::unique_ptr<Worker> worker;
};

}  // namespace gradwire::faults
