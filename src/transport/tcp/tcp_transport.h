// TcpTransport: frames over TCP on a Loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/loop.h"
#include "transport/transport.h"

namespace gradwire::transport {

struct TcpOptions {
  // The interface that others reach this process by: a numeric address or a name of this host.
  std::string bind_host = "127.0.0.1";
  uint16_t port = 0;  // 0: a free one
};

// Everything runs on the loop's thread but for writing. Stop() comes before the loop's.
class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(Loop& loop, TcpOptions options = {});
  ~TcpTransport() override;  // Stop()

  std::string_view scheme() const override { return "tcp"; }
  std::string Listen(AcceptCallback accept) override;
  // `address` as from Listen(): numeric. A failure's text names the address and the cause.
  void Connect(const std::string& address, TimePoint limit, ConnectCallback callback) override;
  // Takes at most a second more than the connections' receivers do (Connection::Close).
  void Stop() override;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace gradwire::transport
