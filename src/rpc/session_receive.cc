// What a session takes from its path: messages in order, pieces of storages, acknowledgments.
#include <utility>

#include "rpc/link.h"
#include "rpc/session_impl.h"

namespace gradwire::rpc {
namespace {

constexpr size_t kAcknowledgeBytes = 64 * 1024;
constexpr std::chrono::milliseconds kAcknowledgeAfter{10};

[[noreturn]] void BrokeProtocol(const Peer& peer, const std::string& what) {
  throw Error(ErrorCode::kInvalid, "worker '" + peer.name + "' broke the protocol: " + what);
}

}  // namespace

struct Session::Arrived {
  std::vector<wire::BulkTarget> storages;
  bool ready = true;  // they have memory
  std::shared_ptr<BulkBudget::Lease> lease;
};

void Session::NoteHeard() {
  last_heard_.store(host_->clock().Now().time_since_epoch().count(), std::memory_order_relaxed);
}

std::byte* Session::BulkTarget(const wire::FrameHeader& header, std::string_view body) {
  NoteHeard();  // its bytes may take a while
  const wire::BulkPiece piece = wire::DecodeBulkPiece(body);
  std::lock_guard lock(receive_mutex_);
  return inbox_.Place(piece, header.bulk_size);
}

void Session::OnFrame(Link& link, const wire::FrameHeader& header, std::string body) {
  NoteHeard();
  if (first_frame_of_.load(std::memory_order_relaxed) != link.id()) {
    first_frame_of_.store(link.id(), std::memory_order_relaxed);
    Todo todo;
    {
      std::lock_guard lock(send_mutex_);
      ++grace_serial_;  // the path carries frames: its grace time is over
      DoLocked(paths_.OnFirstFrame(link.id()), todo);
    }
    Do(todo);
  }
  OnAcknowledged(header.acknowledged);
  if (wire::IsMessage(header.kind)) return OnMessage(header, std::move(body));
  switch (header.kind) {
    case wire::FrameKind::kBulk: return OnPiece(header, body);
    case wire::FrameKind::kAck: return;
    case wire::FrameKind::kPing:
      ack_now_ = true;
      return Flush();
    case wire::FrameKind::kPieces: {
      Freed freed;
      {
        std::lock_guard lock(send_mutex_);
        if (ended_because_) return;
        for (const wire::PieceAnswer& answer : wire::DecodePieceAnswers(body)) {
          Freed some = outbox_.Answered(answer);
          freed.has_bulk |= some.has_bulk;
          for (auto& share : some.shares) freed.shares.push_back(std::move(share));
        }
      }
      LetGo(std::move(freed));
      CheckGone();
      return Flush();  // what was parked may go
    }
    default: BrokeProtocol(peer_, "a frame that belongs to the handshake");
  }
}

void Session::OnAcknowledged(uint64_t number) {
  if (number <= heard_acked_.load(std::memory_order_relaxed)) return;
  Freed freed;
  bool leaving = false;
  {
    std::lock_guard lock(send_mutex_);
    if (ended_because_) return;
    freed = outbox_.Acked(number);
    heard_acked_.store(number, std::memory_order_relaxed);
    leaving = leaving_;
  }
  LetGo(std::move(freed));
  if (leaving) CheckGone();
}

// False when the session has ended: nothing of the peer is handled any more.
bool Session::BeginStep(uint64_t number) {
  std::lock_guard lock(receive_mutex_);
  if (ended_receiving_) return false;
  inbox_.CheckNext(number);
  in_step_ = true;
  return true;
}

void Session::OnMessage(const wire::FrameHeader& header, std::string body) {
  if (!BeginStep(header.number)) return;
  // Whatever happens in the step, the end of the session that came meanwhile is told when it is over.
  struct AtEnd {
    Session& session;
    ~AtEnd() {
      {
        std::lock_guard lock(session.receive_mutex_);
        session.in_step_ = false;
        if (!session.ended_receiving_) return;
      }
      session.host_->OnDrained(session.shared_from_this());
    }
  } at_end{*this};

  const size_t size = body.size();
  Arrived arrived;
  bool leaving = false;
  {
    std::lock_guard lock(send_mutex_);
    leaving = leaving_;
  }
  Task complete = HeaderStep(header.kind, std::move(body), leaving, arrived);
  const bool ready = !arrived.lease ||
                     (!leaving && host_->FindMemoryNow(shared_from_this(), arrived.storages, arrived.lease));
  std::optional<Task> run;
  std::vector<wire::BulkTarget> lacking;
  bool left = false;
  {
    std::lock_guard lock(receive_mutex_);
    if (!ended_receiving_) {
      if (!ready && !leaving) lacking = arrived.storages;
      run = inbox_.Take(header.number, std::move(complete), std::move(arrived.storages), ready);
      taken_.store(header.number, std::memory_order_release);
      if (header.kind == wire::FrameKind::kLeave) left_ = true;
      left = left_ && !inbox_.arriving();
    }
  }
  if (run && *run) (*run)();
  if (!lacking.empty()) host_->FindMemory(shared_from_this(), header.number, std::move(lacking), arrived.lease);
  if (left) return OnLeft();
  NoteTaken(size);
}

// Of a leaver, messages are only counted: their senders' waits end with the pair.
Task Session::HeaderStep(wire::FrameKind kind, std::string body, bool leaving, Arrived& arrived) {
  const auto self = shared_from_this();
  // A large message has its memory found later, on the executor, and counts against what all may have.
  const auto decoded = [&](auto message) {
    if (!arrived.ready) message.lease = arrived.lease = std::make_shared<BulkBudget::Lease>();
    return message;
  };
  const size_t max_bulk = host_->max_bulk_bytes();
  switch (kind) {
    case wire::FrameKind::kRequest: {
      auto request = decoded(wire::DecodeRequest(std::move(body), max_bulk, arrived.storages, arrived.ready));
      if (leaving) break;
      return host_->OnRequest(self, std::move(request));
    }
    case wire::FrameKind::kReply: {
      auto reply = decoded(wire::DecodeReply(std::move(body), max_bulk, arrived.storages, arrived.ready));
      if (leaving) break;
      return host_->OnReply(self, std::move(reply));
    }
    case wire::FrameKind::kCancel:
      if (!leaving) host_->OnCancel(self, wire::DecodeCancel(body));
      break;
    case wire::FrameKind::kCredit:
      if (!leaving) host_->Admit(credit_.Grant(wire::DecodeCredit(body).begun));
      break;
    default: break;  // kLeave
  }
  return nullptr;
}

void Session::OnPiece(const wire::FrameHeader& header, std::string_view body) {
  const wire::BulkPiece piece = wire::DecodeBulkPiece(body);
  std::optional<Task> complete;
  bool at_once = false;
  bool left = false;
  {
    std::lock_guard lock(receive_mutex_);
    complete = inbox_.OnPiece(piece, header.bulk_size);
    if (ended_receiving_) return;
    answers_owed_ = true;
    at_once = inbox_.owes_at_once();
    left = left_ && !inbox_.arriving();
  }
  if (complete && *complete) (*complete)();
  if (left) return OnLeft();
  NoteTaken(at_once ? kAcknowledgeBytes : header.bulk_size);
}

void Session::OnMemory(uint64_t number, std::optional<std::vector<wire::BulkTarget>> storages) {
  std::optional<Task> complete;
  bool left = false;
  {
    std::lock_guard lock(receive_mutex_);
    if (ended_receiving_) return;
    if (storages) {
      inbox_.Ready(number, std::move(*storages));
    } else {
      complete = inbox_.Forget(number);
    }
    answers_owed_ = inbox_.owes_answers();
    left = left_ && !inbox_.arriving();
  }
  if (complete && *complete) (*complete)();
  if (left) return OnLeft();
  ack_now_ = true;
  Flush();
}

// The peer frees its messages by what it hears of them. That rides on what goes there anyway; where nothing does, it
// goes alone, at the latest after kAcknowledgeAfter.
void Session::NoteTaken(size_t bytes) {
  if (taken_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes >= kAcknowledgeBytes) {
    ack_now_ = true;
    return Flush();
  }
  if (ack_timer_armed_.load(std::memory_order_relaxed) || ack_timer_armed_.exchange(true)) return;
  Clock& clock = host_->clock();
  clock.CallAt(clock.Now() + kAcknowledgeAfter, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->ack_timer_armed_ = false;
    if (self->taken_.load() <= self->acknowledged_.load() && !self->answers_owed_.load()) return;
    self->ack_now_ = true;
    self->Flush();
  });
}

// The peer has left, and nothing of it is on its way any more. One that leaves too only acknowledges.
void Session::OnLeft() {
  bool leaving = false;
  {
    std::lock_guard lock(send_mutex_);
    leaving = leaving_;
  }
  if (leaving) {
    ack_now_ = true;
    return Flush();
  }
  End({.code = ErrorCode::kDisconnected,
       .text = "worker '" + peer_.name + "' has left",
       .worker = peer_.name,
       .type_name = std::string(kHasLeft)},
      {SessionEnd::How::kGone}, {});
}

}  // namespace gradwire::rpc
