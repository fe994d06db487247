// Membership: its rounds, as the one who begins them and as one who is asked.
#include <algorithm>
#include <utility>

#include "rpc/membership.h"

namespace gradwire::rpc {

// As the coordinator.

// It asks all, those that it is about too: an answer of theirs is the best proof that they live.
void Membership::BeginRound(const WorkerSet& extra, Actions& actions) {
  const WorkerSet wanted = (Cause() | extra) - gone_ - WorkerSet{self_};
  const wire::Ballot ballot{epoch_, promised_.attempt + 1, self_};
  for (const WorkerId& worker : Others()) actions.emplace_back(Send{worker, wire::GroupAsk{ballot, members_, wanted}});
  promised_ = ballot;
  round_ = Round{.ballot = ballot, .wanted = wanted, .votes = {self_}, .best = accepted_};
  reported_ = {};
}

void Membership::BeginAgain(Actions& actions) {
  const WorkerSet extra = round_->missed | round_->stuck | round_->wanted;
  round_.reset();
  BeginRound(extra, actions);
  Conclude(actions);
}

void Membership::AbandonRound() {
  if (!round_) return;
  reported_ |= (round_->wanted & members_) - gone_;
  round_.reset();
}

// Ends the phase of the round once nobody is left who may still answer.
void Membership::Conclude(Actions& actions) {
  if (!round_) return;
  if (!round_->proposing && (!Pending().empty() || !ConcludeVotes(actions))) return;
  const bool waits = !Pending().empty();
  if (waits && rules_.awaits_acceptances) return;
  if (!round_->change.joined.empty() && !round_->best && !round_->missed.empty()) {
    return BeginAgain(actions);
  }
  if (IsQuorum(round_->accepts, (gone_ & members_) | round_->stuck)) return Decide(actions);
  if (!waits) BeginAgain(actions);
}

// Whether there is a proposal now that waits for acceptances.
bool Membership::ConcludeVotes(Actions& actions) {
  Round& r = *round_;
  const WorkerSet gone = gone_ & members_;
  const WorkerSet silent = r.missed | r.stuck;
  // Of those that a round is not about nobody knows yet whether others reach them, nor have they been silent for long.
  const bool others_silent = !(silent - r.wanted).empty();
  WorkerSet lost = (silent & r.wanted) - r.votes;
  if (rules_.counts_reached) lost -= r.reached;
  const WorkerSet stuck = rules_.stuck_as_gone ? r.stuck & lost : WorkerSet();
  lost |= gone;
  wire::Change change;
  if (r.best && rules_.inherits) {
    change = r.best->change;
  } else {
    if (!joins_.empty() && others_silent) return BeginAgain(actions), false;
    // A newcomer is let in by all: a view that only some have heard of must never hold more than the one before.
    const bool all_vote = (members_ - lost - r.votes).empty();
    change = {lost, all_vote ? Admissible(lost) : WorkerSet()};
    if (change == wire::Change()) {
      actions.emplace_back(Kept{r.votes - WorkerSet{self_}});
      return KeepAll(actions), false;
    }
  }
  if (!IsQuorum(r.votes, gone | stuck)) {
    if (others_silent) return BeginAgain(actions), false;
    // Somebody more senior lives, though only for others: this is its matter.
    if (!((Seniors() & r.reached) - r.votes).empty()) return KeepAll(actions), false;
    r.stuck = stuck;
    return CutOff(actions), false;
  }
  r.proposing = true;
  r.change = std::move(change);
  r.accepts = {self_};
  r.missed = {};
  r.stuck = stuck;
  if (!rules_.asks_acceptance) return Decide(actions), false;
  for (const WorkerId& voter : r.votes - gone - WorkerSet{self_}) {
    actions.emplace_back(Send{voter, wire::GroupPropose{r.ballot, members_, r.change}});
  }
  return true;
}

// Newcomers whose name and rank nobody has who stays, or who comes with them.
WorkerSet Membership::Admissible(const WorkerSet& lost) const {
  WorkerSet staying = members_ - lost;
  WorkerSet joined;
  for (const auto& [newcomer, taken] : joins_) {
    const uint32_t rank = newcomer.rank;
    const bool rank_taken = std::any_of(joined.begin(), joined.end(), [&](WorkerId j) { return j.rank == rank; });
    if (rules_.one_rank_one_worker && (rank_taken || !(taken & staying).empty())) continue;
    joined.insert(newcomer);
    staying.insert(newcomer);
  }
  return joined;
}

// All that the round was about live, some only for others than this worker.
void Membership::KeepAll(Actions& actions) {
  for (const auto& [newcomer, taken] : joins_) actions.emplace_back(Send{newcomer, wire::GroupTaken{}});
  const WorkerSet live = round_->votes | round_->reached;
  parted_ = (parted_ - round_->votes) | ((suspects_ & live) - round_->votes);
  suspects_ -= live;
  joins_.clear();
  round_.reset();
}

// Too few can be reached. It ends its part, and so do those that answered it if together they reach too few.
void Membership::CutOff(Actions& actions) {
  for (const WorkerId& voter : round_->votes - WorkerSet{self_}) {
    actions.emplace_back(
        Send{voter, wire::GroupCut{round_->ballot, round_->votes | round_->reached, gone_ | round_->stuck}});
  }
  End(Standing::kCut, actions);
}

void Membership::Decide(Actions& actions) {
  const wire::Change change = round_->change;
  const WorkerSet members = (members_ - change.lost) | change.joined;
  actions.emplace_back(Decided{change.lost, change.lost & gone_});
  for (const WorkerId& worker : (members_ | change.joined) - gone_ - WorkerSet{self_}) {
    if (!rules_.tells_the_lost && change.lost.contains(worker)) continue;
    actions.emplace_back(Send{worker, wire::GroupView{epoch_ + 1, members}});
  }
  Adopt(epoch_ + 1, members, actions);
}

// As one who is asked.

Membership::Actions Membership::OnRefused(WorkerId by, uint64_t epoch) {
  if (ended()) return {};
  Actions actions;
  if ((epoch > epoch_ && !removed_.contains(by)) || !rules_.checks_refusals) End(Standing::kLost, actions);
  return Settle(std::move(actions));
}

Membership::Actions Membership::OnMessage(WorkerId from, const wire::GroupMessage& message, const WorkerSet& reached,
                                          const WorkerSet& gone) {
  if (ended()) return {};
  Actions actions;
  if (std::holds_alternative<wire::GroupTaken>(message)) {
    if (standing_ == Standing::kJoining) End(Standing::kRefused, actions);
    return Settle(std::move(actions));
  }
  if (const auto* view = std::get_if<wire::GroupView>(&message)) {
    const bool newer = view->epoch > epoch_ || (!rules_.newer_views_only && view->epoch != epoch_);
    if (newer) Adopt(view->epoch, view->members, actions);
    return Settle(std::move(actions));
  }
  const auto* ask = std::get_if<wire::GroupAsk>(&message);
  const auto* propose = std::get_if<wire::GroupPropose>(&message);
  if (ask && ask->ballot.epoch > epoch_) Adopt(ask->ballot.epoch, ask->members, actions);
  if (propose && propose->ballot.epoch > epoch_) Adopt(propose->ballot.epoch, propose->members, actions);
  if (standing_ != Standing::kIn) return actions;
  Hear(from, actions);
  if (ask || propose) HandleBallot(from, message, reached, gone, actions);
  if (const auto* report = std::get_if<wire::GroupReport>(&message)) Handle(*report, actions);
  if (const auto* vote = std::get_if<wire::GroupVote>(&message)) Handle(from, *vote, actions);
  if (const auto* nack = std::get_if<wire::GroupNack>(&message)) Handle(*nack);
  if (const auto* accept = std::get_if<wire::GroupAccept>(&message)) {
    if (round_ && round_->proposing && round_->ballot == accept->ballot) round_->accepts.insert(from);
  }
  if (const auto* cut = std::get_if<wire::GroupCut>(&message)) {
    if (cut->ballot == promised_ && !IsQuorum(cut->voters, cut->gone)) End(Standing::kCut, actions);
  }
  return Settle(std::move(actions));
}

void Membership::HandleBallot(WorkerId from, const wire::GroupMessage& message, const WorkerSet& reached,
                              const WorkerSet& gone, Actions& actions) {
  const auto* ask = std::get_if<wire::GroupAsk>(&message);
  const wire::Ballot ballot = ask ? ask->ballot : std::get<wire::GroupPropose>(message).ballot;
  if (ballot.epoch < epoch_) {
    actions.emplace_back(Send{from, wire::GroupView{epoch_, members_}});
  } else if (ballot < promised_) {
    actions.emplace_back(Send{from, wire::GroupNack{promised_}});
  } else if (ask) {
    const WorkerSet known_gone = ((gone & ask->wanted) | gone_) & members_;
    actions.emplace_back(Send{from, wire::GroupVote{ballot, accepted_, reached & ask->wanted, known_gone}});
    if (!rules_.promises) return;
    AbandonRound();
    promised_ = ballot;
  } else {
    actions.emplace_back(Send{from, wire::GroupAccept{ballot}});
    AbandonRound();
    promised_ = ballot;
    accepted_ = {ballot, std::get<wire::GroupPropose>(message).change};
  }
}

void Membership::Handle(const wire::GroupReport& report, Actions& actions) {
  WorkerSet about = (report.about & members_) - gone_ - WorkerSet{self_};
  for (const auto& [newcomer, taken] : report.joins) {
    if (members_.contains(newcomer)) {
      actions.emplace_back(Send{newcomer, wire::GroupView{epoch_, members_}});
      continue;
    }
    joins_[newcomer] |= taken;
    about |= (taken & members_) - gone_;  // is it still there, whose name or rank the newcomer wants?
  }
  reported_ |= about;
  const WorkerSet again = parted_ & about;  // who once lived for others is doubted anew
  suspects_ |= again;
  parted_ -= again;
}

void Membership::Handle(const wire::GroupNack& nack) {
  if (!round_ || nack.promised <= round_->ballot) return;
  AbandonRound();
  promised_ = std::max(promised_, nack.promised);
}

void Membership::Handle(WorkerId from, const wire::GroupVote& vote, Actions& actions) {
  if (!round_ || round_->proposing || round_->ballot != vote.ballot) return;
  Round& r = *round_;
  r.votes.insert(from);
  if (vote.accepted && (!r.best || vote.accepted->ballot > r.best->ballot)) r.best = vote.accepted;
  r.reached |= vote.reached;
  // Whose machine answers this worker, and who answers others, has only slept. It is asked again, since what it was
  // sent may have been lost with a connection meanwhile.
  for (const WorkerId& worker : r.stuck & vote.reached) {
    r.stuck.erase(worker);
    SendAgain(worker, actions);
  }
  MarkGone(vote.gone);
  dazed_ = false;
}

}  // namespace gradwire::rpc
