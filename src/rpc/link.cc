#include "rpc/link.h"

#include <iterator>
#include <utility>

#include "base/log.h"
#include "wire/call.h"

namespace gradwire::rpc {
namespace {

constexpr std::chrono::seconds kHandshakeLimit{5};

std::atomic<uint64_t> last_link{0};

// What a stranger has written, for logs and errors: any byte may stand in it.
std::string Shown(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

Link::Link(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
           std::shared_ptr<Session> session)
    : host_(std::move(host)),
      id_(last_link.fetch_add(1) + 1),
      connection_(std::move(connection)),
      accepted_(session == nullptr),
      session_(std::move(session)),
      stage_(accepted_ ? Stage::kHello : Stage::kChallenge) {}

void Link::Accept(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection) {
  std::make_shared<Link>(std::move(host), std::move(connection), nullptr)->Begin();
}

std::shared_ptr<Link> Link::Dial(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
                                 std::shared_ptr<Session> session, uint64_t dial, OnFailed failed) {
  const WorkerId to = session->peer().id;
  auto link = std::make_shared<Link>(std::move(host), std::move(connection), std::move(session));
  link->dial_ = dial;
  link->failed_ = std::move(failed);
  link->hello_ = wire::Encode(wire::Hello{
      .from = link->host_->self().id, .from_name = link->host_->self().name, .to = to, .nonce = RandomBytes()});
  link->Queue(wire::FrameKind::kHello, link->hello_);
  link->Begin();
  return link;
}

void Link::Begin() {
  // Before Start(): from then on the link's fields belong to the read role.
  limit_ = host_->clock().CallAt(host_->clock().Now() + kHandshakeLimit, [weak = std::weak_ptr(connection_)] {
    if (auto late = weak.lock()) {
      late->Abort({.code = ErrorCode::kDisconnected,
                   .text = "the handshake on " + late->description() + " took more than 5 s"});
    }
  });
  const auto oldest = accepted_ ? host_->half_open().Add(id_, connection_) : nullptr;
  connection_->Start(shared_from_this(), shared_from_this());
  if (oldest) {
    oldest->Abort({.code = ErrorCode::kDisconnected,
                   .text = oldest->description() + ": too many connections on which nobody has said who he is"});
  }
}

void Link::Queue(wire::FrameKind kind, std::string body, uint64_t acknowledged) {
  std::lock_guard lock(queue_mutex_);
  queue_.push_back(transport::MakeFrame({.kind = kind, .acknowledged = acknowledged}, std::move(body)));
}

void Link::QueueProof(uint64_t number, const wire::ResumeState& have) {
  number_ = number;
  const Digest mac = wire::MacOfProof(host_->job_key(), hello_, challenge_, number);
  Queue(wire::FrameKind::kProof, wire::Encode(wire::Proof{.number = number, .mac = mac}));
  Queue(wire::FrameKind::kResume, wire::Encode(have));
}

void Link::QueueWelcome(const wire::ResumeState& have) {
  const Digest mac = wire::MacOfWelcome(host_->job_key(), hello_, challenge_, number_);
  Queue(wire::FrameKind::kWelcome, wire::Encode(wire::Welcome{.mac = mac}));
  Queue(wire::FrameKind::kResume, wire::Encode(have));
}

void Link::QueueAck(uint64_t taken) { Queue(wire::FrameKind::kAck, {}, taken); }
void Link::QueueRefuse(const wire::Refuse& refuse) { Queue(wire::FrameKind::kRefuse, wire::Encode(refuse)); }
void Link::Open() { open_.store(true, std::memory_order_release); }

void Link::Next(size_t budget, std::vector<transport::OutFrame>& frames) {
  {
    std::lock_guard lock(queue_mutex_);
    if (!queue_.empty()) {
      frames.insert(frames.end(), std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.end()));
      queue_.clear();
      return;
    }
  }
  if (was_path()) session_->Next(*this, budget, frames);
}

void Link::Release(std::vector<transport::OutFrame>& frames) {
  if (was_path()) return session_->Release(frames);
  frames.clear();
}

std::byte* Link::BulkTarget(const wire::FrameHeader& header, std::string_view body) {
  if (!was_path()) throw Error(ErrorCode::kInvalid, "bytes before the connection is open");
  return session_->BulkTarget(header, body);
}

void Link::OnFrame(const wire::FrameHeader& header, std::string body) {
  if (header.kind == wire::FrameKind::kRefuse) return OnRefuse(body);
  if (was_path() && stage_ == Stage::kTaken) return session_->OnFrame(*this, header, std::move(body));
  OnHandshake(header, body);
}

void Link::OnHandshake(const wire::FrameHeader& header, const std::string& body) {
  using Kind = wire::FrameKind;
  if (header.number != 0 || header.acknowledged != 0) {
    throw Error(ErrorCode::kInvalid, "a frame of the handshake carries the number of a message");
  }
  if (stage_ == Stage::kHello && header.kind == Kind::kHello) return OnHello(body);
  if (stage_ == Stage::kProof && header.kind == Kind::kProof) return OnProof(body);
  if (stage_ == Stage::kChallenge && header.kind == Kind::kChallenge) return OnChallenge(body);
  if (stage_ == Stage::kWelcome && header.kind == Kind::kWelcome) return OnWelcome(body);
  if (stage_ == Stage::kResume && header.kind == Kind::kResume) {
    host_->clock().Cancel(limit_);
    stage_ = Stage::kTaken;
    with_session_ = true;
    return session_->OnProof(shared_from_this(), number_, wire::DecodeResumeState(body));
  }
  if (stage_ == Stage::kWelcomeResume && header.kind == Kind::kResume) {
    host_->clock().Cancel(limit_);
    stage_ = Stage::kTaken;
    return session_->OnWelcome(shared_from_this(), wire::DecodeResumeState(body));
  }
  throw Error(ErrorCode::kInvalid, "a frame of kind " + std::to_string(static_cast<int>(header.kind)) +
                                       " that the handshake does not have there");
}

void Link::RefuseAndClose(wire::RefuseCode code, const std::string& text) {
  // That somebody connects to one that has just left is no trouble.
  const LogLevel level = code == wire::RefuseCode::kLeft ? LogLevel::kInfo : LogLevel::kWarning;
  Log(level, connection_->description() + ": " + text + "; connection closed");
  QueueRefuse({.code = code, .text = text});
  Close({.code = ErrorCode::kPermissionDenied, .text = text});
}

void Link::OnHello(const std::string& body) {
  if (const uint16_t version = wire::VersionOfHello(body); version != wire::Hello::kVersion) {
    return RefuseAndClose(wire::RefuseCode::kVersion, "the two speak different versions of the protocol, " +
                                                          std::to_string(version) + " and " +
                                                          std::to_string(wire::Hello::kVersion));
  }
  const wire::Hello hello = wire::DecodeHello(body);
  if (hello.to != host_->self().id) {
    return RefuseAndClose(
        wire::RefuseCode::kOtherWorker,
        "'" + Shown(hello.from_name.substr(0, 64)) + "' looks for another worker, or another life of this one");
  }
  hello_ = body;
  other_ = {hello.from, hello.from_name};
  challenge_ = wire::Encode(wire::Challenge{.nonce = RandomBytes()});
  stage_ = Stage::kProof;
  Queue(wire::FrameKind::kChallenge, challenge_);
  Wake();
}

void Link::OnProof(const std::string& body) {
  const wire::Proof proof = wire::DecodeProof(body);
  if (!SameDigest(proof.mac, wire::MacOfProof(host_->job_key(), hello_, challenge_, proof.number))) {
    return RefuseAndClose(wire::RefuseCode::kKey, "the other side belongs to another job");
  }
  std::optional<Member> member = host_->FindMember(other_.id);
  if (!member) member = host_->Admit(other_);
  if (!member || member->peer.name != other_.name) {
    return RefuseAndClose(wire::RefuseCode::kNoMember, "'" + other_.name + "' is not a member of this group");
  }
  session_ = host_->AcceptingSession(member->peer);
  if (!session_) return RefuseAndClose(wire::RefuseCode::kLeft, "worker '" + host_->self().name + "' has shut down");
  number_ = proof.number;
  stage_ = Stage::kResume;
  Known();
}

void Link::OnChallenge(const std::string& body) {
  wire::DecodeChallenge(body);
  challenge_ = body;
  stage_ = Stage::kWelcome;
  with_session_ = true;
  session_->OnDialed(dial_, shared_from_this());
}

void Link::OnWelcome(const std::string& body) {
  const wire::Welcome welcome = wire::DecodeWelcome(body);
  // The number is the one of the Proof: the session has given it.
  if (!SameDigest(welcome.mac, wire::MacOfWelcome(host_->job_key(), hello_, challenge_, number_))) {
    throw Error(ErrorCode::kPermissionDenied, "another worker than '" + session_->peer().name + "' answers there");
  }
  failed_ = nullptr;
  stage_ = Stage::kWelcomeResume;
  Known();
}

void Link::OnRefuse(const std::string& body) {
  wire::Refuse refuse = wire::DecodeRefuse(body);
  if (stage_ != Stage::kTaken) refuse.text = Shown(std::move(refuse.text));
  using wire::RefuseCode;
  // Who is there is not the peer, so its next address is tried.
  const bool refused =
      refuse.code == RefuseCode::kOtherWorker || refuse.code == RefuseCode::kVersion || refuse.code == RefuseCode::kKey;
  if (with_session_) session_->OnRefused(shared_from_this(), refuse);
  if (auto failed = std::exchange(failed_, nullptr); failed && (refused || !with_session_)) {
    failed(refused, {.code = ErrorCode::kUnreachable, .text = connection_->description() + ": " + refuse.text});
  }
  Close({.code = ErrorCode::kDisconnected, .text = refuse.text});
}

void Link::Known() {
  if (accepted_) host_->half_open().Remove(id_);
  connection_->SetBodyLimit(wire::kMaxBodyBytes);
}

void Link::OnClosed(const Failure& reason) {
  host_->clock().Cancel(limit_);
  if (accepted_) host_->half_open().Remove(id_);
  if (auto failed = std::exchange(failed_, nullptr); failed && !with_session_) failed(false, reason);
  if (with_session_) session_->OnClosed(shared_from_this(), reason);
}

}  // namespace gradwire::rpc
