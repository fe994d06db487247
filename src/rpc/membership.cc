#include "rpc/membership.h"

#include <algorithm>
#include <utility>

#include "wire/cursor.h"

namespace gradwire::rpc {

Membership::Membership(WorkerId self, WorkerSet members, Partition partition, MembershipRules rules)
    : self_(self),
      partition_(partition),
      rules_(rules),
      standing_(members.contains(self) ? Standing::kIn : Standing::kJoining),
      epoch_(standing_ == Standing::kIn ? 1 : 0),
      members_(standing_ == Standing::kIn ? std::move(members) : WorkerSet()),
      promised_{.epoch = epoch_} {}

// What it sees of the group.

WorkerSet Membership::Seniors() const {
  WorkerSet seniors;
  for (const WorkerId& member : members_) {
    if (member < self_) seniors.insert(member);
  }
  return seniors;
}

WorkerSet Membership::Others() const { return members_ - gone_ - WorkerSet{self_}; }

WorkerSet Membership::Cause() const { return (suspects_ | gone_ | reported_) & members_; }

bool Membership::Acts() const {
  return standing_ == Standing::kIn && (Seniors() - suspects_ - gone_).empty();
}

bool Membership::StandsAlone() const { return (Seniors() - suspects_ - gone_ - parted_).empty(); }

std::optional<WorkerId> Membership::Target() const {
  const WorkerSet reached = Others() - suspects_ - parted_;
  if (reached.empty()) return std::nullopt;
  return reached.front();
}

WorkerSet Membership::Pending() const {
  if (!round_) return {};
  const WorkerSet& asked = round_->proposing ? round_->votes : members_;
  const WorkerSet answered = round_->proposing ? round_->accepts : round_->votes | round_->stuck;
  return asked - gone_ - round_->missed - answered - WorkerSet{self_};
}

bool Membership::WantsToJudge() const { return Acts() && !round_ && (!Cause().empty() || !joins_.empty()); }

bool Membership::IsQuorum(const WorkerSet& votes, const WorkerSet& gone) const {
  if (partition_ == Partition::kEvery || !rules_.needs_quorum) return true;
  const WorkerSet living = rules_.gone_do_not_count ? members_ - gone : members_;
  const WorkerSet& counted = rules_.counts_the_view ? members_ : living;
  const size_t have = 2 * (votes & counted).size();
  if (have > counted.size()) return true;
  if (dazed_ && rules_.doubts_itself) return false;
  if ((living - votes).empty()) return true;
  return have == counted.size() && (!rules_.tie_to_senior || votes.contains(living.front()));
}

bool Membership::LetsIn(WorkerId from, const wire::GroupMessage& message) const {
  if (members_.contains(from) || standing_ == Standing::kJoining) return true;
  if (removed_.contains(from)) return false;
  if (const auto* report = std::get_if<wire::GroupReport>(&message)) {
    return report->joins.size() == 1 && report->joins.begin()->first == from;
  }
  return std::holds_alternative<wire::GroupView>(message) || std::holds_alternative<wire::GroupTaken>(message);
}

// Events of the watch.

// Every event ends here: a round that waits for nobody any more goes on, and what is new is reported.
Membership::Actions Membership::Settle(Actions actions) {
  if (standing_ == Standing::kIn) Conclude(actions);
  if (standing_ == Standing::kIn) Report(actions);
  return actions;
}

Membership::Actions Membership::OnBroken(WorkerId worker) {
  if (ended()) return {};
  Actions actions;
  AfterBreak(worker, actions);
  return Settle(std::move(actions));
}

Membership::Actions Membership::OnDark(WorkerId worker) {
  if (ended()) return {};
  Actions actions;
  AfterBreak(worker, actions);
  dark_ |= suspects_ & WorkerSet{worker};
  return Settle(std::move(actions));
}

void Membership::AfterBreak(WorkerId worker, Actions& actions) {
  if (!members_.contains(worker) || gone_.contains(worker)) return;
  if (!rules_.break_is_suspicion) {
    gone_.insert(worker);
    suspects_.erase(worker);
    return;
  }
  SendAgain(worker, actions);  // what was on its way may be lost with the connection
  if (!parted_.contains(worker)) suspects_.insert(worker);
}

Membership::Actions Membership::OnGone(WorkerId worker) {
  if (ended()) return {};
  MarkGone(WorkerSet{worker} & members_);
  return Settle({});
}

void Membership::MarkGone(const WorkerSet& workers) {
  gone_ |= workers;
  suspects_ -= workers;
  parted_ -= workers;
}

Membership::Actions Membership::OnHeard(WorkerId worker) {
  if (ended()) return {};
  Actions actions;
  Hear(worker, actions);
  return Settle(std::move(actions));
}

void Membership::Hear(WorkerId worker, Actions& actions) {
  if (round_) {
    const bool back = round_->missed.contains(worker) || (!round_->proposing && round_->stuck.contains(worker));
    round_->missed.erase(worker);
    if (!round_->proposing) {
      round_->stuck.erase(worker);
      if (round_->wanted.contains(worker)) round_->reached.insert(worker);
    }
    if (back) SendAgain(worker, actions);  // it answers after all
  }
  suspects_.erase(worker);
  parted_.erase(worker);
  dark_.erase(worker);
}

Membership::Actions Membership::OnMet(WorkerId worker) {
  if (ended()) return {};
  ForgetTold(worker);
  suspects_.erase(worker);
  parted_.erase(worker);
  dark_.erase(worker);
  return Settle({});
}

Membership::Actions Membership::OnPathLost(WorkerId worker) {
  if (ended()) return {};
  ForgetTold(worker);
  return Settle({});
}

Membership::Actions Membership::OnStuck(WorkerId worker) {
  if (ended()) return {};
  if (round_) {
    const bool dark = dark_.contains(worker) && rules_.dark_is_not_stuck;
    (!round_->proposing && !dark ? round_->stuck : round_->missed).insert(worker);
  }
  return Settle({});
}

Membership::Actions Membership::OnMissed(WorkerId worker) {
  if (ended()) return {};
  if (round_) round_->missed.insert(worker);
  return Settle({});
}

Membership::Actions Membership::OnSettled(WorkerId worker) {
  if (ended()) return {};
  if (suspects_.contains(worker)) parted_.insert(worker);
  suspects_.erase(worker);
  reported_.erase(worker);
  return Settle({});
}

Membership::Actions Membership::OnRecheck(WorkerId worker) {
  if (ended()) return {};
  if (parted_.contains(worker)) suspects_.insert(worker);
  parted_.erase(worker);
  return Settle({});
}

Membership::Actions Membership::OnSlept() {
  if (ended()) return {};
  if (rules_.sleep_ends_round) AbandonRound();
  dazed_ = true;
  return Settle({});
}

Membership::Actions Membership::OnAnswered(WorkerId worker) {
  if (ended()) return {};
  Actions actions;
  Hear(worker, actions);
  dazed_ = false;
  return Settle(std::move(actions));
}

Membership::Actions Membership::OnJudge() {
  if (ended()) return {};
  Actions actions;
  BeginRound({}, actions);
  return Settle(std::move(actions));
}

Membership::Actions Membership::Leave() {
  if (ended()) return {};
  Actions actions;
  End(Standing::kLeft, actions);
  return actions;
}

void Membership::SendAgain(WorkerId worker, Actions& actions) {
  if (Pending().contains(worker)) {
    if (round_->proposing) {
      actions.emplace_back(Send{worker, wire::GroupPropose{round_->ballot, members_, round_->change}});
    } else {
      actions.emplace_back(Send{worker, wire::GroupAsk{round_->ballot, members_, round_->wanted}});
    }
  }
  ForgetTold(worker);
}

void Membership::ForgetTold(WorkerId worker) {
  if (told_ && told_->to == worker) told_.reset();
}

// Not the coordinator: tells who stands nearest to it, once for each news and each recipient.
void Membership::Report(Actions& actions) {
  const WorkerSet about = Cause();
  const std::optional<WorkerId> to = Target();
  if (Acts() || round_ || !to || (about.empty() && joins_.empty())) return;
  WorkerSet joining;
  for (const auto& [newcomer, taken] : joins_) joining.insert(newcomer);
  if (told_ && told_->to == *to && (about - told_->about).empty() && (joining - told_->joins).empty()) return;
  actions.emplace_back(Send{*to, wire::GroupReport{epoch_, about, joins_}});
  told_ = Told{*to, about, std::move(joining)};
}

void Membership::End(Standing why, Actions& actions) {
  actions.emplace_back(Ended{why});
  standing_ = why;
  suspects_ = gone_ = parted_ = reported_ = {};
  joins_.clear();
  accepted_.reset();
  round_.reset();
  told_.reset();
}

void Membership::Adopt(uint64_t epoch, const WorkerSet& members, Actions& actions) {
  if (!members.contains(self_)) {
    if (standing_ != Standing::kJoining) End(Standing::kLost, actions);
    return;
  }
  const WorkerSet left = members_ - members;
  for (const WorkerId& worker : left) actions.emplace_back(EndSession{worker});
  standing_ = Standing::kIn;
  epoch_ = epoch;
  members_ = members;
  removed_ |= left;
  for (WorkerSet* of : {&suspects_, &gone_, &parted_, &reported_, &dark_}) *of &= members;
  std::erase_if(joins_, [&](const auto& join) { return members.contains(join.first); });
  promised_ = {.epoch = epoch};
  accepted_.reset();
  round_.reset();
  told_.reset();
  dazed_ = false;
}

std::string Membership::Key() const {
  std::string key;
  const auto set = [&](const WorkerSet& workers) {
    wire::Append(key, static_cast<uint32_t>(workers.size()));
    for (const WorkerId& worker : workers) wire::Append(key, worker.packed());
  };
  const auto add = [&](const wire::GroupMessage& message) { key += wire::Encode(message); };
  wire::Append(key, self_.packed(), standing_, static_cast<uint8_t>(dazed_));
  add(wire::GroupReport{epoch_, members_, joins_});
  for (const WorkerSet* of : {&suspects_, &gone_, &parted_, &reported_, &removed_, &dark_}) set(*of);
  add(wire::GroupVote{promised_, accepted_, {}, {}});
  wire::Append(key, static_cast<uint8_t>(told_.has_value()));
  if (told_) wire::Append(key, told_->to.packed()), set(told_->about), set(told_->joins);
  wire::Append(key, static_cast<uint8_t>(round_.has_value()));
  if (!round_) return key;
  const Round& r = *round_;
  wire::Append(key, static_cast<uint8_t>(r.proposing));
  add(wire::GroupVote{r.ballot, r.best, r.wanted, r.votes});
  add(wire::GroupPropose{r.ballot, r.reached, r.change});
  for (const WorkerSet* of : {&r.missed, &r.stuck, &r.accepts}) set(*of);
  return key;
}

}  // namespace gradwire::rpc
