#include "rpc/dial.h"

#include <utility>

namespace gradwire::rpc {
namespace {

constexpr std::chrono::seconds kConnectLimit{5};  // of one address

}  // namespace

Dial::Dial(std::shared_ptr<LinkHost> host, std::shared_ptr<Session> session, uint64_t number,
           std::vector<std::string> addresses, std::vector<std::shared_ptr<transport::Transport>> transports)
    : host_(std::move(host)),
      session_(std::move(session)),
      number_(number),
      addresses_(std::move(addresses)),
      transports_(std::move(transports)) {}

void Dial::Begin(std::shared_ptr<LinkHost> host, std::shared_ptr<Session> session, uint64_t number,
                 std::vector<std::string> addresses, std::vector<std::shared_ptr<transport::Transport>> transports) {
  std::make_shared<Dial>(std::move(host), std::move(session), number, std::move(addresses), std::move(transports))
      ->Try(0);
}

void Dial::Try(size_t index) {
  for (; index < addresses_.size(); ++index) {
    const std::string& address = addresses_[index];
    const std::string scheme = address.substr(0, address.find("://"));
    for (const auto& transport : transports_) {
      if (transport->scheme() != scheme) continue;
      return transport->Connect(
          address, host_->clock().Now() + kConnectLimit,
          [self = shared_from_this(), index](std::shared_ptr<transport::Connection> connection, const Failure& why) {
            if (!connection) return self->Failed(index, why.code == ErrorCode::kDisconnected, why);
            Link::Dial(self->host_, std::move(connection), self->session_, self->number_,
                       [self, index](bool refused, const Failure& why) { self->Failed(index, refused, why); });
          });
    }
  }
  if (failures_.empty()) failures_ = "it has no address that this worker can use";
  session_->OnDialFailed(number_, refused_everywhere_, {.code = ErrorCode::kUnreachable, .text = failures_});
}

void Dial::Failed(size_t index, bool refused, const Failure& why) {
  refused_everywhere_ = refused_everywhere_ && refused;
  failures_ += (failures_.empty() ? "" : "; ") + why.text;
  Try(index + 1);
}

}  // namespace gradwire::rpc
