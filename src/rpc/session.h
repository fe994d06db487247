// Session: what goes between this worker and one peer, in order and once, over whatever connections there are (O1, O3).
//
// It joins three tables that step: Outbox (what is to be sent), Inbox (what has come) and Paths (which connection is in
// use). Links bring it the frames of their connections and pull from it what they write. docs/wire.md tells how a pair
// outlives its connections.
//
// Locks: the send mutex guards Outbox and Paths, the receive mutex the Inbox; taken in this order. Connections are
// woken, closed and dialed after unlock only, since they pull under the send mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event.h"
#include "base/task.h"
#include "gradwire/error.h"
#include "rpc/bulk_budget.h"
#include "rpc/credit.h"
#include "rpc/inbox.h"
#include "rpc/interceptor.h"
#include "rpc/outbox.h"
#include "rpc/paths.h"
#include "rpc/session_end.h"
#include "wire/call.h"

namespace gradwire::rpc {

class Link;
class Session;

// What a session needs from its Rpc. The calls for frames come under the read role; none may wait.
class SessionHost {
 public:
  virtual ~SessionHost() = default;

  virtual const Peer& self() const = 0;
  virtual Clock& clock() = 0;

  // Begins to connect; ends in OnDialed() of the session, which shakes hands over the connection, or in OnDialFailed(),
  // each with `dial`. Either may come before it returns.
  virtual void Dial(const std::shared_ptr<Session>& session, uint64_t dial) = 0;

  // The header step. The returned task is run once all bytes of the message are here, and dropped when they never come.
  virtual Task OnRequest(const std::shared_ptr<Session>& session, wire::Request request) = 0;
  virtual Task OnReply(const std::shared_ptr<Session>& session, wire::Reply reply) = 0;
  virtual void OnCancel(const std::shared_ptr<Session>& session, const wire::Cancel& cancel) = 0;

  // Sends of requests that waited for credit and may go.
  virtual void Admit(std::vector<Task> sends) = 0;

  // Finds memory for a message that has come without it, at once: true. False: it is to be found later.
  virtual bool FindMemoryNow(const std::shared_ptr<Session>& session, std::vector<wire::BulkTarget>& storages,
                             const std::shared_ptr<BulkBudget::Lease>& lease) = 0;
  // Finds memory for a message that has come without it, and tells OnMemory() of the session, not under a role. The
  // message holds the lease until it is handled.
  virtual void FindMemory(const std::shared_ptr<Session>& session, uint64_t number,
                          std::vector<wire::BulkTarget> storages,
                          const std::shared_ptr<BulkBudget::Lease>& lease) = 0;

  // A peer that is silent for so long may be lost. Its connection is given up before that, in favour of another.
  virtual Duration silence_limit() const = 0;
  // Whether something here waits for the peer, though all that was sent has been acknowledged.
  virtual bool AwaitsAnswer(const Peer& peer) const = 0;
  // The pair has had no connection for longer than the grace time. It goes on connecting until it is ended.
  virtual void OnSilent(const std::shared_ptr<Session>& session, const Failure& why) = 0;

  // The session has ended: later Enqueue()s are refused. Messages numbered `never_sent` and above have never been on
  // their way. Once. Then OnDrained, once: no header step of the peer runs any more, nor will one.
  virtual void OnEnded(const std::shared_ptr<Session>& session, const Failure& reason, uint64_t never_sent) = 0;
  virtual void OnDrained(const std::shared_ptr<Session>& session) = 0;

  virtual void Discard(std::vector<Task> tasks) = 0;  // destroys them where user values may be destroyed
  virtual void Post(Task task) = 0;                   // to the executor
  virtual size_t max_bulk_bytes() const = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `can_dial`: the peer has an address, and this object is the side of the pair that may connect. A worker's session
  // with itself is two objects, one that only connects and one that only accepts.
  Session(std::shared_ptr<SessionHost> host, Peer peer, bool can_dial = true);
  ~Session();

  const Peer& peer() const { return peer_; }
  Credit& credit() { return credit_; }

  // Numbers the message and queues it; connects when nothing is connected yet. The reason when the session has ended:
  // the message was not queued. Flush() writes; apart, since the caller may hold the send-step mutex. Any thread.
  // `number`, when given, is set before anybody can send the message.
  std::optional<Failure> Enqueue(wire::FrameKind kind, wire::EncodedMessage message, uint64_t* number = nullptr);
  void Flush();

  // For a thread that waits for `event`, which a message of the peer will set: reads messages on it, for as long as a
  // quick answer takes. Where the last answers took longer it is not tried for a while.
  void ReadUntil(const Event& event);

  // What the peer is told when this side ends the session: code and number of the Refuse.
  struct Farewell {
    wire::RefuseCode code = wire::RefuseCode::kEnded;
    uint64_t epoch = 0;  // of kRemoved
  };
  // Ends it once and for all, and tells the peer why. Nothing that is still kept is sent any more.
  void End(const Failure& reason) { End(reason, {}, {}); }
  void End(const Failure& reason, Farewell farewell) { End(reason, {}, farewell); }
  std::optional<Failure> ended_because() const;  // nothing while it lives
  SessionEnd ended_how() const;                  // once it has ended

  // Leaves the pair: nothing new is sent, what comes is acknowledged and forgotten, and `gone` runs once all that was
  // sent has arrived, or cannot arrive any more. It never runs when it is dropped by End().
  void Leave(Task gone);

  // When the peer was heard last, by any frame; nothing when never.
  std::optional<TimePoint> LastHeard() const;
  // Has the peer answer at once. Nothing without a path.
  void Ping();
  bool has_path() const;

  // --- From the host.
  void OnDialed(uint64_t dial, const std::shared_ptr<Link>& link);
  // `refused`: the peer is at none of its addresses any more.
  void OnDialFailed(uint64_t dial, bool refused, const Failure& why);
  // Nothing when there is none: the message is completed without its bytes, which its reader finds out.
  void OnMemory(uint64_t number, std::optional<std::vector<wire::BulkTarget>> storages);

  // --- From its links, under their read role; what throws Error breaks the protocol.
  void OnProof(const std::shared_ptr<Link>& link, uint64_t number, wire::ResumeState told);
  void OnWelcome(const std::shared_ptr<Link>& link, wire::ResumeState told);
  void OnRefused(const std::shared_ptr<Link>& link, const wire::Refuse& refuse);
  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view body);
  void OnFrame(Link& link, const wire::FrameHeader& header, std::string body);
  void OnClosed(const std::shared_ptr<Link>& link, const Failure& reason);
  // Under the write role of a link.
  void Next(const Link& link, size_t budget, std::vector<transport::OutFrame>& frames);
  void Release(std::vector<transport::OutFrame>& frames);

 private:
  struct Todo;  // what is to be done after unlock

  // Carries out what Paths says, as far as the send mutex is needed for it.
  void DoLocked(Paths::Actions actions, Todo& todo);
  void AdoptLocked(const Paths::Adopt& adopt, Todo& todo);
  void Do(Todo& todo);
  template <class F>
  void Step(F step);  // of Paths, under the send mutex
  Failure LostLocked() const;

  void End(const Failure& reason, SessionEnd how, Farewell farewell);
  void NoteHeard();
  bool BeginStep(uint64_t number);
  void OnMessage(const wire::FrameHeader& header, std::string body);
  struct Arrived;  // what a message brings besides its header step
  Task HeaderStep(wire::FrameKind kind, std::string body, bool leaving, Arrived& arrived);
  void OnPiece(const wire::FrameHeader& header, std::string_view body);
  void OnAcknowledged(uint64_t number);
  void NoteTaken(size_t bytes);
  void OnLeft();
  void CheckGone();
  void LetGo(Freed freed);

  void ArmGrace(uint64_t serial, Duration grace);
  void ArmWatch();
  void OnWatch();

  static constexpr TimePoint::rep kNever = std::numeric_limits<TimePoint::rep>::min();

  const std::shared_ptr<SessionHost> host_;
  const Peer peer_;
  const Duration silence_limit_;  // of the host
  Credit credit_;

  mutable std::mutex send_mutex_;  // guards:
  Outbox outbox_;
  Paths paths_;
  std::shared_ptr<Link> path_;
  std::unordered_map<Paths::LinkId, std::shared_ptr<Link>> links_;  // that have proved themselves or were dialed
  std::optional<Failure> ended_because_;
  SessionEnd ended_how_;
  Farewell farewell_;  // for whoever connects after the end
  bool leaving_ = false;
  Task gone_;                  // of Leave()
  uint64_t dial_ = 0;          // the current one
  std::string trouble_;        // why the last connection or attempt has ended
  uint64_t grace_serial_ = 0;  // changes when a grace time begins or is over
  bool path_was_silent_ = false;  // and is given up for that
  size_t paths_open_ = 0;      // connections that are or were the path, and have not closed

  std::mutex receive_mutex_;  // guards:
  Inbox inbox_;
  bool in_step_ = false;          // a header step runs
  bool ended_receiving_ = false;  // nothing of the peer is handled any more
  bool left_ = false;             // the peer's Leave was taken

  // What is owed to the peer, for the write role.
  std::atomic<uint64_t> taken_{0};         // as inbox_.taken()
  std::atomic<uint64_t> acknowledged_{0};  // the last that was sent
  std::atomic<size_t> taken_bytes_{0};     // since then
  std::atomic<bool> ack_now_{false};       // an Ack goes out even when nothing else does
  std::atomic<bool> ping_now_{false};
  std::atomic<bool> answers_owed_{false};
  std::atomic<bool> ack_timer_armed_{false};
  std::atomic<bool> watch_armed_{false};
  std::atomic<uint64_t> heard_acked_{0};  // the highest acknowledgment that was looked at
  std::atomic<TimePoint::rep> last_heard_{kNever};
  std::atomic<uint64_t> first_frame_of_{0};  // the link whose first frame was told to Paths

  // In ReadUntil(): answers in a row that took too long, and calls that do without.
  std::atomic<uint32_t> misses_{0};
  std::atomic<uint32_t> to_skip_{0};
};

}  // namespace gradwire::rpc
