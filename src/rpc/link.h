// Link: one connection of a pair. First the handshake, in which both sides prove that they know the job's key and say
// who they are (docs/wire.md), then the frames of the session for as long as this connection is the pair's path.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "rpc/half_open.h"
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
  // The session that takes connections of this peer; nullptr when the group has ended here.
  virtual std::shared_ptr<Session> AcceptingSession(const Peer& peer) = 0;
  virtual Clock& clock() = 0;
  virtual HalfOpen& half_open() = 0;
};

class Link final : public transport::Receiver,
                   public transport::FrameSource,
                   public std::enable_shared_from_this<Link> {
 public:
  // The handshake of a dialed link has failed before the other side gave its Challenge, or somebody else is there:
  // `refused`, so this address will never do. The session knows of the second already, and that the dial goes on.
  using OnFailed = UniqueFunction<void(bool refused, const Failure& why)>;

  // Both begin the handshake. Accept() takes a connection of whoever called; Dial() one that was made for `session`,
  // which is told OnDialed(dial) when the other side has answered with a Challenge.
  static void Accept(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection);
  static std::shared_ptr<Link> Dial(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
                                    std::shared_ptr<Session> session, uint64_t dial, OnFailed failed);

  Link(std::shared_ptr<LinkHost> host, std::shared_ptr<transport::Connection> connection,
       std::shared_ptr<Session> session);

  uint64_t id() const { return id_; }
  // Whether it is, or was, the path of its session.
  bool was_path() const { return open_.load(std::memory_order_acquire); }

  // For the session. These only queue; Wake() writes. Under the session's mutexes.
  void QueueProof(uint64_t number, const wire::ResumeState& have);
  void QueueWelcome(const wire::ResumeState& have);
  void QueueAck(uint64_t taken);
  void QueueRefuse(const wire::Refuse& refuse);
  // From now on it carries the session's frames.
  void Open();

  // And these are for after unlock.
  void Wake() { connection_->Wake(); }
  void Close(Failure reason) { connection_->Close(std::move(reason)); }
  void Abort(Failure reason) { connection_->Abort(std::move(reason)); }
  void ReadUntil(const Event& event, Duration limit) { connection_->ReadUntil(event, limit); }
  std::string description() const { return connection_->description(); }

  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body) override;
  void OnFrame(const wire::FrameHeader& header, std::string body) override;
  void OnClosed(const Failure& reason) override;
  void Next(size_t budget, std::vector<transport::OutFrame>& frames) override;
  void Release(std::vector<transport::OutFrame>& frames) override;

 private:
  enum class Stage { kHello, kProof, kResume, kTaken, kChallenge, kWelcome, kWelcomeResume };

  void Begin();
  void Queue(wire::FrameKind kind, std::string body, uint64_t acknowledged = 0);
  void RefuseAndClose(wire::RefuseCode code, const std::string& text);
  void OnHandshake(const wire::FrameHeader& header, const std::string& body);
  void OnHello(const std::string& body);
  void OnProof(const std::string& body);
  void OnChallenge(const std::string& body);
  void OnWelcome(const std::string& body);
  void OnRefuse(const std::string& body);
  void Known();  // the other side has proved itself

  const std::shared_ptr<LinkHost> host_;
  const uint64_t id_;
  const std::shared_ptr<transport::Connection> connection_;  // which lets go of its receiver when it ends
  const bool accepted_;
  std::atomic<bool> open_{false};

  // under the read role
  std::shared_ptr<Session> session_;  // of an accepted link: once the other side is known
  Stage stage_;
  std::string hello_, challenge_;  // as they travelled
  Peer other_;                     // as its Hello says
  std::atomic<uint64_t> number_{0};  // of the Proof
  bool with_session_ = false;      // the session knows of this link
  uint64_t dial_ = 0;
  OnFailed failed_;
  TimerId limit_ = 0;

  std::mutex queue_mutex_;  // guards:
  std::vector<transport::OutFrame> queue_;
};

}  // namespace gradwire::rpc
