// Dial: one try to reach a peer, at each of its addresses in turn, until one of them answers as that peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rpc/link.h"
#include "rpc/session.h"
#include "transport/transport.h"

namespace gradwire::rpc {

class Dial final : public std::enable_shared_from_this<Dial> {
 public:
  // Ends in OnDialed() or OnDialFailed() of the session, with `number`. Any thread, roles included.
  static void Begin(std::shared_ptr<LinkHost> host, std::shared_ptr<Session> session, uint64_t number,
                    std::vector<std::string> addresses,
                    std::vector<std::shared_ptr<transport::Transport>> transports);

  Dial(std::shared_ptr<LinkHost> host, std::shared_ptr<Session> session, uint64_t number,
       std::vector<std::string> addresses, std::vector<std::shared_ptr<transport::Transport>> transports);

 private:
  void Try(size_t index);
  void Failed(size_t index, bool refused, const Failure& why);

  const std::shared_ptr<LinkHost> host_;
  const std::shared_ptr<Session> session_;
  const uint64_t number_;
  const std::vector<std::string> addresses_;
  const std::vector<std::shared_ptr<transport::Transport>> transports_;
  bool refused_everywhere_ = true;
  std::string failures_;
};

}  // namespace gradwire::rpc
