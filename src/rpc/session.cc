#include "rpc/session.h"

#include <algorithm>

#include "rpc/borrowed_read.h"
#include "rpc/link.h"
#include "rpc/send_step.h"
#include "rpc/session_impl.h"

namespace gradwire::rpc {
namespace {

constexpr std::chrono::microseconds kQuickAnswer{100};
constexpr uint32_t kMostSkipped = 64;

}  // namespace

Session::Session(std::shared_ptr<SessionHost> host, Peer peer, bool can_dial)
    : host_(std::move(host)),
      peer_(std::move(peer)),
      silence_limit_(host_->silence_limit()),
      paths_(host_->self().id, peer_.id, can_dial) {}
Session::~Session() = default;

std::optional<Failure> Session::Enqueue(wire::FrameKind kind, wire::EncodedMessage message, uint64_t* number) {
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    if (ended_because_) return ended_because_;
    if (leaving_) {
      return Failure{.code = ErrorCode::kDisconnected, .text = "this worker has left", .worker = host_->self().name};
    }
    // Under the lock, before anybody can send it: whoever finds the number unset knows that it never went out.
    if (number) *number = outbox_.last() + 1;
    outbox_.Push(kind, std::move(message));
    DoLocked(paths_.OnWanted(), todo);
  }
  Do(todo);
  ArmWatch();
  return std::nullopt;
}

void Session::Flush() {
  if (SendStepLock::on_this_thread() && SendStepLock::Defers(shared_from_this())) return;
  std::shared_ptr<Link> path;
  {
    std::lock_guard lock(send_mutex_);
    path = path_;
  }
  if (path) path->Wake();
}

bool Session::has_path() const {
  std::lock_guard lock(send_mutex_);
  return path_ != nullptr;
}

std::optional<Failure> Session::ended_because() const {
  std::lock_guard lock(send_mutex_);
  return ended_because_;
}

SessionEnd Session::ended_how() const {
  std::lock_guard lock(send_mutex_);
  return ended_how_;
}

std::optional<TimePoint> Session::LastHeard() const {
  const TimePoint::rep when = last_heard_.load(std::memory_order_relaxed);
  if (when == kNever) return std::nullopt;
  return TimePoint(Duration(when));
}

void Session::Ping() {
  ping_now_.store(true);
  Flush();
}

void Session::ReadUntil(const Event& event) {
  // Counts may be lost to another thread: they only weigh costs.
  if (const uint32_t skip = to_skip_.load(std::memory_order_relaxed)) {
    to_skip_.store(skip - 1, std::memory_order_relaxed);
    return;
  }
  std::shared_ptr<Link> path;
  {
    std::lock_guard lock(send_mutex_);
    path = path_;
  }
  if (!path) return;
  {
    const BorrowedRead plain;
    path->ReadUntil(event, kQuickAnswer);
  }
  if (event.is_set()) {
    misses_.store(0, std::memory_order_relaxed);
  } else {
    const uint32_t misses = misses_.load(std::memory_order_relaxed) + 1;
    misses_.store(misses, std::memory_order_relaxed);
    to_skip_.store(std::min(kMostSkipped, 1u << std::min(misses, 16u)), std::memory_order_relaxed);
  }
}

// What is owed goes before messages: memory on the other side waits for it.
void Session::Next(const Link& link, size_t budget, std::vector<transport::OutFrame>& frames) {
  std::lock_guard lock(send_mutex_);
  if (path_.get() != &link) return;
  const size_t before = frames.size();
  const uint64_t taken = taken_.load(std::memory_order_acquire);
  if (answers_owed_.exchange(false)) {
    std::lock_guard receive(receive_mutex_);
    while (inbox_.owes_answers()) {
      frames.push_back(transport::MakeFrame({.kind = wire::FrameKind::kPieces, .acknowledged = taken},
                                            wire::Encode(inbox_.TakeAnswers())));
    }
  }
  if (ping_now_.exchange(false)) {
    frames.push_back(transport::MakeFrame({.kind = wire::FrameKind::kPing, .acknowledged = taken}));
  }
  outbox_.Next(budget, taken, frames);
  const bool ack = ack_now_.exchange(false);
  if (frames.size() == before && ack) {
    frames.push_back(transport::MakeFrame({.kind = wire::FrameKind::kAck, .acknowledged = taken}));
  }
  if (frames.size() == before) return;
  acknowledged_.store(taken, std::memory_order_relaxed);
  taken_bytes_.store(0, std::memory_order_relaxed);
}

void Session::Release(std::vector<transport::OutFrame>& frames) {
  const bool has_bulk =
      std::any_of(frames.begin(), frames.end(), [](const transport::OutFrame& frame) { return frame.bulk.size > 0; });
  if (!has_bulk) return frames.clear();
  // Perhaps the last share of a tensor whose owner is a program's object.
  host_->Post([used = std::move(frames)] {});
  frames = {};
}

void Session::LetGo(Freed freed) {
  if (freed.has_bulk) host_->Post([freed = std::move(freed)] {});
}

}  // namespace gradwire::rpc
