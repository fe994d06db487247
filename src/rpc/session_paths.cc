// Session's connections: what Paths decides, the grace time, and the end of the pair.
#include <algorithm>
#include <random>
#include <utility>
#include <variant>

#include "rpc/link.h"
#include "rpc/session_impl.h"

namespace gradwire::rpc {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstRetry{20};
constexpr milliseconds kLongestRetry{500};
constexpr milliseconds kRetryOfAccepted{50};
constexpr milliseconds kGrace{300};
constexpr milliseconds kLeastGraceOfNew{5000};
constexpr int kWatchesPerLimit = 5, kWatchesOfSilence = 3;

// Doubles, plus up to as much again, so that two that fail together do not go on doing so. `salt` is their own and
// changes with each retry: chance, but the same in the same simulation.
milliseconds RetryDelay(const Paths::AwaitRetry& retry, uint64_t salt) {
  if (retry.pause == Paths::Pause::kAccepted) return kRetryOfAccepted;
  const milliseconds base = std::min(kLongestRetry, kFirstRetry * (1 << std::clamp(retry.failures - 1, 0, 10)));
  std::mt19937_64 random(salt);
  return base + milliseconds(std::uniform_int_distribution<int64_t>(0, base.count())(random));
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

void Session::DoLocked(Paths::Actions actions, Todo& todo) {
  const auto self = shared_from_this();
  const auto link_of = [this](Paths::LinkId id) {
    auto it = links_.find(id);
    return it == links_.end() ? nullptr : it->second;
  };
  for (auto& action : actions) {
    std::visit(
        Overloaded{
            [&](Paths::Dial) {
              const uint64_t dial = ++dial_;
              todo.Add([self, dial] { self->host_->Dial(self, dial); });
              if (!paths_.ever_open() && grace_serial_ == 0) {
                const Duration grace = std::max<Duration>(kLeastGraceOfNew, silence_limit_);
                todo.Add([self, grace, serial = ++grace_serial_] { self->ArmGrace(serial, grace); });
              }
            },
            [&](Paths::DropDial) { ++dial_; },
            [&](const Paths::Prove& prove) {
              const auto link = link_of(prove.link);
              if (!link) return;
              std::lock_guard receive(receive_mutex_);
              link->QueueProof(prove.number, inbox_.Resume());
              todo.Add([link] { link->Wake(); });
            },
            [&](const Paths::Adopt& adopt) { AdoptLocked(adopt, todo); },
            [&](const Paths::Refuse& refuse) {
              const auto link = link_of(refuse.link);
              if (!link) return;
              Failure why{.code = ErrorCode::kDisconnected, .text = "another connection of the pair is newer"};
              wire::Refuse told{.code = refuse.code, .number = refuse.number};
              if (ended_because_) {
                why = *ended_because_;
                told.code = farewell_.code;
                told.number = farewell_.epoch;
              }
              told.text = why.text;
              link->QueueRefuse(told);
              todo.Add([link, why = std::move(why)]() mutable { link->Close(std::move(why)); });
            },
            [&](const Paths::Abort& abort) {
              const auto link = link_of(abort.link);
              if (!link) return;
              todo.Add([link] {
                link->Abort({.code = ErrorCode::kDisconnected, .text = "another connection takes its place"});
              });
            },
            [&](const Paths::AwaitRetry& retry) {
              todo.Add([self, delay = RetryDelay(retry, peer_.id.packed() + host_->self().id.rank + dial_)] {
                self->host_->clock().CallAt(self->host_->clock().Now() + delay, [weak = self->weak_from_this()] {
                  if (const auto session = weak.lock()) session->Step([](Paths& paths) { return paths.OnRetry(); });
                });
              });
            },
            [&](Paths::PathLost) {
              path_.reset();
              // One that was given up for its silence has until the limit of silence to speak on another.
              Duration grace = kGrace;
              if (std::exchange(path_was_silent_, false)) {
                grace = std::max(grace, silence_limit_ - (host_->clock().Now() - *LastHeard()));
              }
              todo.Add([self, grace, serial = ++grace_serial_] { self->ArmGrace(serial, grace); });
            },
            [&](Paths::Refused) {
              todo.Add([self, why = LostLocked()] { self->End(why, {SessionEnd::How::kGone}, {}); });
            },
        },
        action);
  }
}

void Session::AdoptLocked(const Paths::Adopt& adopt, Todo& todo) {
  const auto it = links_.find(adopt.link);
  if (it == links_.end()) return;
  const std::shared_ptr<Link> link = it->second;
  const auto self = shared_from_this();
  try {
    todo.Add([self, freed = outbox_.Resume(adopt.told)]() mutable { self->LetGo(std::move(freed)); });
  } catch (const Error& error) {
    // It would tell the same on the next connection.
    Failure failure = error.failure();
    failure.text = "worker '" + peer_.name + "' broke the protocol: " + failure.text;
    todo.Add([self, failure = std::move(failure)] { self->End(failure, {SessionEnd::How::kPair}, {}); });
    return;
  }
  path_ = link;
  ++paths_open_;
  acknowledged_ = 0;
  ack_now_ = true;
  if (adopt.accepted) {
    std::lock_guard receive(receive_mutex_);
    link->QueueWelcome(inbox_.Resume());
  }
  {
    std::lock_guard receive(receive_mutex_);
    answers_owed_ = inbox_.owes_answers();
  }
  heard_acked_ = outbox_.acked();
  NoteHeard();
  link->Open();
  todo.Add([self, link] {
    link->Wake();
    self->ArmWatch();
  });
}

void Session::Do(Todo& todo) {
  for (Task& task : todo.tasks) task();
}

// Why there is no connection, in words for whoever waits for one.
Failure Session::LostLocked() const {
  const bool ever_open = paths_.ever_open();
  return {.code = ever_open ? ErrorCode::kDisconnected : ErrorCode::kUnreachable,
          .text = (ever_open ? "the connection to worker '" + peer_.name + "' ended: "
                             : "worker '" + peer_.name + "' cannot be reached: ") +
                  (trouble_.empty() ? "it has not answered" : trouble_),
          .worker = peer_.name};
}

void Session::OnDialed(uint64_t dial, const std::shared_ptr<Link>& link) {
  bool wanted = true;
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    wanted = dial == dial_ && !ended_because_;
    if (wanted) {
      links_.emplace(link->id(), link);
      DoLocked(paths_.OnDialed(link->id()), todo);
      DoLocked(paths_.OnChallenge(link->id()), todo);
    }
  }
  if (!wanted) return link->Abort({.code = ErrorCode::kDisconnected, .text = "it is not needed any more"});
  Do(todo);
}

void Session::OnDialFailed(uint64_t dial, bool refused, const Failure& why) {
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    if (dial != dial_ || ended_because_) return;
    trouble_ = why.text;
    DoLocked(paths_.OnDialFailed(refused), todo);
  }
  Do(todo);
}

void Session::OnProof(const std::shared_ptr<Link>& link, uint64_t number, wire::ResumeState told) {
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    links_.emplace(link->id(), link);
    DoLocked(paths_.OnProof(link->id(), number, std::move(told)), todo);
  }
  Do(todo);
}

void Session::OnWelcome(const std::shared_ptr<Link>& link, wire::ResumeState told) {
  Step([&](Paths& paths) { return paths.OnWelcome(link->id(), std::move(told)); });
}

void Session::OnRefused(const std::shared_ptr<Link>& link, const wire::Refuse& refuse) {
  const std::string text = "worker '" + peer_.name + "' refused: " + refuse.text;
  if (refuse.code >= wire::RefuseCode::kEnded) {
    SessionEnd how{SessionEnd::How::kPair};
    if (refuse.code == wire::RefuseCode::kLeft) how.how = SessionEnd::How::kGone;
    if (refuse.code == wire::RefuseCode::kRemoved) how = {SessionEnd::How::kRemoved, refuse.number};
    // The other side's own words name whom they are about.
    return End({.code = ErrorCode::kDisconnected, .text = refuse.text, .worker = peer_.name}, how, {});
  }
  Todo todo;
  {
    std::lock_guard lock(send_mutex_);
    if (refuse.code != wire::RefuseCode::kStale) trouble_ = text;
    DoLocked(paths_.OnRefused(link->id(), refuse.code, refuse.number), todo);
  }
  Do(todo);
}

void Session::OnClosed(const std::shared_ptr<Link>& link, const Failure& reason) {
  const bool bad = reason.code == ErrorCode::kInvalid || reason.code == ErrorCode::kInternal;
  if (bad && link->was_path()) {
    Failure failure = reason;
    failure.code = ErrorCode::kDisconnected;
    failure.worker = peer_.name;
    failure.text = "the connection to worker '" + peer_.name + "' ended: " + reason.text;
    End(failure, {SessionEnd::How::kPair}, {});
  }
  Todo todo;
  bool last = false;
  {
    std::lock_guard lock(send_mutex_);
    links_.erase(link->id());
    if (path_ == link) path_.reset();
    trouble_ = reason.text;
    if (link->was_path()) last = --paths_open_ == 0 && ended_because_.has_value();
    DoLocked(paths_.OnClosed(link->id()), todo);
  }
  if (last) {
    std::lock_guard lock(receive_mutex_);
    inbox_.Drop();
  }
  Do(todo);
}

void Session::ArmGrace(uint64_t serial, Duration grace) {
  Clock& clock = host_->clock();
  clock.CallAt(clock.Now() + grace, [weak = weak_from_this(), serial] {
    const auto self = weak.lock();
    if (!self) return;
    Failure why;
    {
      std::lock_guard lock(self->send_mutex_);
      if (serial != self->grace_serial_ || self->ended_because_) return;
      why = self->LostLocked();
    }
    self->host_->OnSilent(self, why);
  });
}

// A path that brings nothing in spite of Pings, while something is awaited of it, is given up early enough for another
// to be made before the peer counts as lost: a firewall may have forgotten this one, and both sides are well.
void Session::ArmWatch() {
  if (watch_armed_.load(std::memory_order_relaxed) || watch_armed_.exchange(true)) return;
  Clock& clock = host_->clock();
  clock.CallAt(clock.Now() + silence_limit_ / kWatchesPerLimit, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnWatch();
  });
}

void Session::OnWatch() {
  watch_armed_ = false;
  std::shared_ptr<Link> path;
  const bool awaits = host_->AwaitsAnswer(peer_);
  Duration silence{};
  bool gives_up = false;
  {
    std::lock_guard lock(send_mutex_);
    // The next message arms it again, or the next path.
    if (ended_because_ || !path_ || (!awaits && !outbox_.retains())) return;
    path = path_;
    silence = host_->clock().Now() - *LastHeard();  // a path is heard of when it begins
    gives_up = path_was_silent_ = silence >= kWatchesOfSilence * (silence_limit_ / kWatchesPerLimit);
  }
  if (gives_up) {
    const auto ms = std::chrono::duration_cast<milliseconds>(silence).count();
    path->Abort({.code = ErrorCode::kDisconnected,
                 .text = path->description() + ": silent for " + std::to_string(ms) + " ms"});
  } else if (silence >= silence_limit_ / kWatchesPerLimit) {
    Ping();
  }
  ArmWatch();
}

void Session::End(const Failure& reason, SessionEnd how, Farewell farewell) {
  Todo todo;
  std::shared_ptr<Link> path;
  uint64_t never_sent = 0;
  bool unread = false;  // no connection writes into the memory of messages
  Task gone;
  {
    std::lock_guard lock(send_mutex_);
    if (ended_because_) return;
    ended_because_ = reason;
    ended_how_ = how;
    farewell_ = farewell;
    never_sent = outbox_.first_never_sent();
    todo.Add([this, freed = outbox_.End()]() mutable { LetGo(std::move(freed)); });
    DoLocked(paths_.End(), todo);
    path = std::exchange(path_, nullptr);
    if (path) {
      path->QueueAck(taken_.load());
      path->QueueRefuse({.code = farewell.code, .number = farewell.epoch, .text = reason.text});
    }
    gone = std::exchange(gone_, nullptr);
    unread = paths_open_ == 0;
  }
  std::vector<Task> dropped;
  bool drained = false;
  {
    std::lock_guard lock(receive_mutex_);
    dropped = inbox_.End();
    if (unread) inbox_.Drop();
    ended_receiving_ = true;
    drained = !in_step_;
  }
  if (path) path->Close(reason);
  Do(todo);
  if (!dropped.empty()) host_->Discard(std::move(dropped));
  host_->Admit(credit_.Close());  // they find out that the session has ended
  const auto self = shared_from_this();
  host_->OnEnded(self, reason, never_sent);
  if (drained) host_->OnDrained(self);
  if (gone) gone();
}

void Session::Leave(Task gone) {
  Todo todo;
  bool idle = false;
  {
    std::lock_guard lock(send_mutex_);
    if (ended_because_ || leaving_) {
      idle = true;
    } else {
      leaving_ = true;
      idle = paths_.state() == Paths::State::kIdle;  // the two have never met
      if (!idle) {
        gone_ = std::move(gone);
        wire::EncodedMessage leave;
        leave.bytes.assign(wire::FrameHeader::kSize, '\0');
        outbox_.Push(wire::FrameKind::kLeave, std::move(leave));
        DoLocked(paths_.OnWanted(), todo);
      }
    }
  }
  if (idle) return gone();
  std::vector<Task> dropped;
  {
    std::lock_guard lock(receive_mutex_);
    dropped = inbox_.Leave();
    answers_owed_ = inbox_.owes_answers();
  }
  Do(todo);
  if (!dropped.empty()) host_->Discard(std::move(dropped));
  Flush();
}

// All that was sent before the Leave, and it, has arrived.
void Session::CheckGone() {
  Task gone;
  {
    std::lock_guard lock(send_mutex_);
    if (!leaving_ || outbox_.retains()) return;
    gone = std::exchange(gone_, nullptr);
  }
  if (gone) gone();
}

}  // namespace gradwire::rpc
