#include "rpc/link.h"

#include <utility>

#include "wire/call.h"

namespace gradwire::rpc {
namespace {

constexpr uint32_t kBodyLimit = uint32_t{1} << 30;

// The key's comparison takes the same time wherever the first difference is.
bool SameKey(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

Link::Link(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
           std::shared_ptr<Session> session)
    : host_(std::move(host)),
      connection_(std::move(connection)),
      session_(std::move(session)),
      accepted_(session_ == nullptr) {}

void Link::Start(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
                 std::shared_ptr<Session> session) {
  auto link = std::make_shared<Link>(std::move(host), connection, std::move(session));
  // Before Start(): from then on the link's fields belong to the read role.
  link->limit_ =
      link->host_->clock().CallAt(link->host_->clock().Now() + kHandshakeLimit, [weak = std::weak_ptr(connection)] {
        if (auto late = weak.lock()) {
          late->Close({.code = ErrorCode::kDisconnected,
                       .text = "the handshake on " + late->description() + " took more than 5 s"});
        }
      });
  if (!link->accepted_) link->SendHello(wire::FrameKind::kHello, link->session_->peer());
  connection->Start(link);
}

void Link::SendHello(wire::FrameKind kind, const Peer& to) {
  const std::string body = wire::Encode(
      wire::Hello{.job_key = host_->job_key(), .from = host_->self().id, .from_name = host_->self().name, .to = to.id});
  transport::OutFrame frame;
  wire::EncodeHeader({.kind = kind, .body_size = static_cast<uint32_t>(body.size())}, frame.bytes);
  frame.bytes += body;
  connection_->Send(std::move(frame), transport::Lane::kHeaders);
}

std::byte* Link::BulkTarget(const wire::FrameHeader& header, std::string_view body) {
  return delivers_ ? session_->BulkTarget(header, body) : nullptr;  // a message comes before its bytes
}

void Link::OnFrame(const wire::FrameHeader& header, std::string body) {
  if (open_) {
    if (!delivers_) session_->SetIncoming(connection_);
    delivers_ = true;
    return session_->OnFrame(header, body);
  }
  if (accepted_ && header.kind == wire::FrameKind::kHello) return OnHello(body);
  if (!accepted_ && header.kind == wire::FrameKind::kWelcome) return OnWelcome(body);
  throw Error(ErrorCode::kInvalid, "the first frame is not a handshake");
}

void Link::OnHello(std::string_view body) {
  const wire::Hello hello = wire::DecodeHello(body);
  if (!SameKey(hello.job_key, host_->job_key())) {
    throw Error(ErrorCode::kPermissionDenied, "the other side belongs to another job");
  }
  if (hello.to != host_->self().id) {
    throw Error(ErrorCode::kInvalid, "'" + hello.from_name + "' looks for another worker, or another life of this one");
  }
  std::optional<Member> member = host_->FindMember(hello.from);
  if (!member) member = host_->Admit({hello.from, hello.from_name});
  if (!member || member->peer.name != hello.from_name) {
    throw Error(ErrorCode::kPermissionDenied, "'" + hello.from_name + "' is not a member of this group");
  }
  session_ = host_->SessionWith(member->peer);
  if (!session_) throw Error(ErrorCode::kDisconnected, "this worker has shut down");
  SendHello(wire::FrameKind::kWelcome, member->peer);
  Open();
}

void Link::OnWelcome(std::string_view body) {
  const wire::Hello hello = wire::DecodeHello(body);
  if (!SameKey(hello.job_key, host_->job_key()) || hello.from != session_->peer().id || hello.to != host_->self().id) {
    throw Error(ErrorCode::kPermissionDenied, "another worker than '" + session_->peer().name + "' answers there");
  }
  Open();
}

void Link::Open() {
  host_->clock().Cancel(limit_);
  connection_->SetBodyLimit(kBodyLimit);
  open_ = true;
  session_->Attach(connection_);
}

void Link::OnClosed(const Failure& reason) {
  host_->clock().Cancel(limit_);
  connection_.reset();
  if (!session_) return;  // a stranger
  Failure lost = reason;
  if (lost.code != ErrorCode::kDisconnected && lost.code != ErrorCode::kUnreachable) {
    lost.code = ErrorCode::kDisconnected;
  }
  lost.worker = session_->peer().name;
  if (lost.text.find(lost.worker) == std::string::npos) {
    lost.text = "the connection to worker '" + lost.worker + "' ended: " + reason.text;
  }
  if (open_) {
    session_->OnConnectionClosed(lost);
  } else {
    session_->ConnectFailed(lost);
  }
}

}  // namespace gradwire::rpc
