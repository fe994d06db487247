#include "rpc/group.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace gradwire::rpc {
namespace {

using std::chrono::milliseconds;

}  // namespace

Group::Group(Options options)
    : options_(std::move(options)),
      limit_(std::max<Duration>(options_.heartbeat_limit, milliseconds(20))),
      beat_period_(std::min<Duration>(std::chrono::seconds(1), limit_ / 5)),
      tick_period_(std::min<Duration>(milliseconds(500), limit_ / 20)),
      round_limit_(std::min<Duration>(std::chrono::seconds(1), limit_ / 2)),
      vote_limit_(round_limit_ * 3 / 5),
      table_(options_.self, options_.members, options_.partition) {}

void Group::Start() {
  Step([this](TimePoint now) {
    started_ = true;
    next_tick_ = now + tick_period_;
  });
}

void Group::Stop() {
  Step([this](TimePoint) {
    stopped_ = true;
    (void)table_.Leave();
    if (timer_ != 0) options_.clock->Cancel(std::exchange(timer_, 0));
    todo_.clear();
  });
}

uint64_t Group::epoch() const {
  std::lock_guard lock(mutex_);
  return table_.epoch();
}

WorkerSet Group::members() const {
  std::lock_guard lock(mutex_);
  return table_.members();
}

void Group::CarryOut() {
  for (;;) {
    std::deque<UniqueFunction<void(GroupHost&)>> tasks;
    {
      std::lock_guard lock(mutex_);
      tasks.swap(todo_);
      if (tasks.empty()) {
        carrying_out_ = false;
        return;
      }
    }
    const auto host = options_.host.lock();
    if (!host) continue;
    for (auto& task : tasks) task(*host);
  }
}

// What the sessions say.

void Group::OnLetter(WorkerId from, std::string_view bytes) {
  const wire::GroupLetter letter = wire::DecodeGroupLetter(bytes);
  Step([&](TimePoint now) {
    for (const auto& [worker, reason] : letter.reasons) {
      if (worker == options_.self || table_.members().contains(worker)) reasons_[worker] = reason;
    }
    NoteHeard(from, now);
    if (const auto* beat = std::get_if<wire::GroupBeat>(&letter.content)) return OnBeat(from, *beat, now);
    OnGroupMessage(from, std::get<wire::GroupMessage>(letter.content), now);
  });
}

void Group::OnNoPath(WorkerId worker, const Failure& why) {
  Step([&](TimePoint now) {
    Watch(worker, now);
    others_[worker].no_path = why.text;
    StartProbe(worker);
  });
}

void Group::OnSessionEnded(WorkerId worker, SessionEnd end, const Failure& why) {
  using How = SessionEnd::How;
  if (end.how == How::kHere) return;
  Step([&](TimePoint now) {
    Other& other = others_[worker];
    other.why = why.text;
    if (end.how == How::kRemoved) {
      own_end_ = why.text;
      Do(table_.OnRefused(worker, end.epoch));
      own_end_.clear();
    } else if (end.how == How::kGone) {
      Do(table_.OnGone(worker));
      for (auto& [proposer, vote] : votes_) vote.gone.insert(worker);
    } else if (table_.members().contains(worker)) {
      other.doubted = now;
      Do(table_.OnBroken(worker));
    }
  });
}

void Group::OnBeat(WorkerId from, const wire::GroupBeat& beat, TimePoint now) {
  Other& other = others_[from];
  if (beat.is_answer) {
    other.beats_answered = std::max(other.beats_answered, std::min(beat.number, other.beats_sent));
    if (table_.dazed() && beat.number >= other.fresh_beat && table_.members().contains(from)) {
      Do(table_.OnAnswered(from));
    }
  } else {
    other.beaten = now;
    const wire::GroupBeat answer{.epoch = table_.epoch(), .number = beat.number, .is_answer = true};
    Later([from, bytes = wire::Encode(wire::GroupLetter{answer, {}})](GroupHost& host) mutable {
      host.SendLetter(from, std::move(bytes));
    });
  }
  if (beat.epoch < table_.epoch() && table_.members().contains(from)) TellView(from);
}

void Group::OnGroupMessage(WorkerId from, const wire::GroupMessage& message, TimePoint now) {
  if (!table_.LetsIn(from, message)) return;
  if (const auto* cut = std::get_if<wire::GroupCut>(&message)) reached_ = cut->voters.size();
  if (const auto* view = std::get_if<wire::GroupView>(&message)) {
    told_epoch_ = std::max(told_epoch_, view->epoch);
    if (view->epoch == table_.epoch() && asked_.ballot.proposer == from && asked_.ballot.epoch == view->epoch) {
      for (const WorkerId& worker : table_.suspects() & asked_.wanted) Do(table_.OnSettled(worker));
    }
  }
  if (const auto* propose = std::get_if<wire::GroupPropose>(&message)) {
    told_epoch_ = std::max(told_epoch_, propose->ballot.epoch);
  }
  const auto* ask = std::get_if<wire::GroupAsk>(&message);
  if (ask) told_epoch_ = std::max(told_epoch_, ask->ballot.epoch);
  if (!ask || ask->ballot < table_.promised()) return Do(table_.OnMessage(from, message));
  asked_ = *ask;
  // Whom this worker reaches is to be known first. Each of them is asked for a sign of life, and its machine for one.
  const WorkerSet wanted = ask->wanted - WorkerSet{options_.self, from};
  votes_[from] = Vote{.ask = *ask, .limit = now + vote_limit_, .since = now, .gone = wanted & table_.gone()};
  for (const WorkerId& worker : wanted - table_.gone()) {
    Watch(worker, now);
    SendBeat(worker);
    StartProbe(worker);
  }
  CheckVotes(now);
}

void Group::NoteHeard(WorkerId worker, TimePoint when) {
  Other& other = others_[worker];
  if (when <= other.heard) return;
  other.heard = when;
  const bool doubted = table_.suspects().contains(worker) || table_.parted().contains(worker);
  const auto& round = table_.round();
  const bool in_round = round && (round->missed.contains(worker) || round->stuck.contains(worker) ||
                                  (round->wanted.contains(worker) && !round->reached.contains(worker)));
  if ((doubted && when > other.doubted) || (in_round && when > round_began_)) Do(table_.OnHeard(worker));
}

// What is to be done.

void Group::Do(Membership::Actions actions) {
  for (auto& action : actions) {
    if (auto* send = std::get_if<Membership::Send>(&action)) {
      if (const auto* cut = std::get_if<wire::GroupCut>(&send->message)) reached_ = cut->voters.size();
      Send(send->to, send->message);
    } else if (const auto* end = std::get_if<Membership::EndSession>(&action)) {
      Later([worker = end->worker, epoch = table_.epoch(), why = LossOf(end->worker)](GroupHost& host) mutable {
        why.text = "worker '" + host.NameOf(worker) + "' " + why.text;
        why.worker = host.NameOf(worker);
        Log(LogLevel::kInfo, why.text);
        host.EndSession(worker, epoch, why);
      });
    } else if (const auto* decided = std::get_if<Membership::Decided>(&action)) {
      const TimePoint now = options_.clock->Now();
      for (const WorkerId& worker : decided->lost) {
        const Other& other = others_[worker];
        const bool gone = decided->gone.contains(worker);
        reasons_[worker] = !other.why.empty() ? other.why : gone ? "it is no more" : ShownSilence(other, now);
      }
    } else if (const auto* kept = std::get_if<Membership::Kept>(&action)) {
      // A view that they have says that the round is over: whoever reported a suspect waits for it.
      for (const WorkerId& voter : kept->voters) TellView(voter);
    } else {
      OnOwnEnd(std::get<Membership::Ended>(action).why);
    }
  }
}

void Group::Send(WorkerId to, const wire::GroupMessage& message) {
  wire::GroupLetter letter{message, {}};
  if (const auto* view = std::get_if<wire::GroupView>(&message)) {
    for (const auto& [worker, reason] : reasons_) {
      if (!view->members.contains(worker)) letter.reasons[worker] = reason;
    }
  }
  Later([to, bytes = wire::Encode(letter)](GroupHost& host) mutable { host.SendLetter(to, std::move(bytes)); });
}

void Group::TellView(WorkerId to) { Send(to, wire::GroupView{table_.epoch(), table_.members()}); }

std::string Group::ShownSilence(const Other& other, TimePoint now) const {
  char text[48];
  std::snprintf(text, sizeof text, "silent for %.1f s", std::chrono::duration<double>(Silence(other, now)).count());
  return text;
}

Failure Group::LossOf(WorkerId worker) const {
  const auto reason = reasons_.find(worker);
  return {.code = ErrorCode::kDisconnected,
          .text = "was declared lost by the group in epoch " + std::to_string(table_.epoch()) +
                  (reason == reasons_.end() ? std::string() : " (" + reason->second + ")")};
}

void Group::OnOwnEnd(Membership::Standing why) {
  if (why == Membership::Standing::kLeft) return;
  std::string text;
  if (why == Membership::Standing::kCut) {
    text = "is cut off from the group: reached " + std::to_string(reached_) + " of " +
           std::to_string(table_.members().size()) + " workers";
  } else if (own_end_.empty()) {
    const auto reason = reasons_.find(options_.self);
    text = "was declared lost by the group in epoch " + std::to_string(told_epoch_) +
           (reason == reasons_.end() ? std::string() : " (" + reason->second + ")");
  }
  Later([self = options_.self, text, told = own_end_](GroupHost& host) {
    const std::string name = host.NameOf(self);
    const Failure failure{.code = ErrorCode::kDisconnected,
                          .text = text.empty() ? told : "worker '" + name + "' " + text,
                          .worker = name};
    Log(LogLevel::kWarning, failure.text);
    host.OnFenced(failure);
  });
}

// After each step: what follows from it at once.
void Group::Advance(TimePoint now) {
  if (!started_ || stopped_) return;
  for (;;) {
    if (promised_ != table_.promised()) {
      promised_ = table_.promised();
      promised_at_ = now;
    }
    const auto& round = table_.round();
    if (round && (round->ballot != round_ || round->proposing != proposing_)) {
      round_ = round->ballot;
      proposing_ = round->proposing;
      round_began_ = now;
      for (auto& [worker, other] : others_) other.probed_for_round = false;
      for (const WorkerId& worker : table_.Pending()) Watch(worker, now);
    }
    if (!table_.WantsToJudge() || IsBlocked(now)) break;
    Do(table_.OnJudge());
  }
  const WorkerSet doubted = table_.suspects() | table_.reported() | table_.parted();
  for (const WorkerId& worker : doubted) {
    Other& other = others_[worker];
    if (other.doubted == TimePoint()) other.doubted = now;
  }
  for (auto& [worker, other] : others_) {
    if (!doubted.contains(worker)) other.doubted = TimePoint();
  }
  for (const WorkerId& worker : table_.parted() - parted_) {
    others_[worker].doubted = now;
    FailPair(worker, now);
  }
  for (const WorkerId& worker : (parted_ - table_.parted()) & table_.members()) {
    Later([worker](GroupHost& host) { host.OnReached(worker); });
  }
  parted_ = table_.parted();
  if (viewed_ != table_.epoch()) {
    viewed_ = table_.epoch();
    Later([epoch = viewed_, members = table_.members()](GroupHost& host) { host.OnView(epoch, members); });
  }
  if (table_.ended()) return;
  TimePoint next = next_tick_;
  for (const auto& [from, vote] : votes_) next = std::min(next, vote.limit);
  Arm(next);
}

// A worker that has promised to another's round begins none of its own while that one can still end.
bool Group::IsBlocked(TimePoint now) const {
  const WorkerId proposer = promised_.proposer;
  if (promised_.attempt == 0 || proposer == options_.self || !table_.members().contains(proposer)) return false;
  if (table_.gone().contains(proposer) || table_.suspects().contains(proposer)) return false;
  return now < promised_at_ + limit_ + 2 * round_limit_;
}

void Group::Arm(TimePoint when) {
  if (timer_ != 0) {
    if (due_ <= when) return;
    options_.clock->Cancel(timer_);
  }
  due_ = when;
  timer_ = options_.clock->CallAt(when, [weak = weak_from_this(), serial = ++armed_] {
    if (const auto self = weak.lock()) self->OnTimer(serial);
  });
}

}  // namespace gradwire::rpc
