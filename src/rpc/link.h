// Link: one connection's receiver. First the handshake, which says who the other side is, then the session's frames.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "rpc/members.h"
#include "rpc/session.h"
#include "transport/transport.h"

namespace gradwire::rpc {

// What a link needs from its Rpc.
class LinkHost {
 public:
  virtual ~LinkHost() = default;

  virtual const Peer& self() const = 0;
  virtual const std::string& job_key() const = 0;
  virtual std::optional<Member> FindMember(WorkerId id) const = 0;
  // Takes in one that is no member but knows the job's key; nothing in a fixed group.
  virtual std::optional<Member> Admit(const Peer& stranger) = 0;
  // The session with a member; nullptr when the group has ended here.
  virtual std::shared_ptr<Session> SessionWith(const Peer& peer) = 0;
  virtual Clock& clock() = 0;
};

class Link final : public transport::Receiver, public std::enable_shared_from_this<Link> {
 public:
  // Takes an accepted connection (no session) or one made for `session`, and begins the handshake.
  static void Start(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
                    std::shared_ptr<Session> session);

  Link(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
       std::shared_ptr<Session> session);

  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body) override;
  void OnFrame(const wire::FrameHeader& header, std::string body) override;
  void OnClosed(const Failure& reason) override;

 private:
  static constexpr std::chrono::seconds kHandshakeLimit{5};

  void SendHello(wire::FrameKind kind, const Peer& to);
  void OnHello(std::string_view body);
  void OnWelcome(std::string_view body);
  void Open();

  const std::shared_ptr<LinkHost> host_;
  // under the read role
  std::shared_ptr<transport::Connection> connection_;  // released by OnClosed, which breaks the cycle
  std::shared_ptr<Session> session_;                   // of an accepted link: once the other side is known
  const bool accepted_;
  bool open_ = false;
  bool delivers_ = false;  // the peer sends its messages here
  TimerId limit_ = 0;
};

}  // namespace gradwire::rpc
