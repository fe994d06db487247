#include "rref/user_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rref/canonical.h"

namespace gradwire::rref {
namespace {

std::shared_ptr<const Failure> HandleDropped() {
  return std::make_shared<const Failure>(
      Failure{.code = ErrorCode::kInvalid, .text = "This RRef was dropped: it can no longer be used on this worker."});
}

}  // namespace

void UserTable::Created(RRefId rref, ForkId fork, WorkerId owner) {
  const bool added = forks_.try_emplace(fork, Fork{rref, owner, State::kCreating, nullptr, {}}).second;
  assert(added);
  static_cast<void>(added);
}

UserTable::Actions UserTable::CreationReplied(ForkId fork, std::shared_ptr<const Failure> failure) {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return {};  // dropped before the answer came
  at->second.creation_failure = std::move(failure);
  return Ended(fork, State::kConfirmed, nullptr);
}

UserTable::Actions UserTable::CreationUnanswered(ForkId fork, std::shared_ptr<const Failure> failure) {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return {};
  at->second.creation_failure = failure;
  return Ended(fork, State::kUnconfirmed, std::move(failure));
}

Arrival UserTable::Received(RRefId rref, ForkId fork, WorkerId owner, WorkerId from) {
  if (lost_.contains(from)) return Arrival::kFromLost;
  const State state = from == owner ? State::kConfirmed : State::kUnconfirmed;
  const bool fresh = forks_.try_emplace(fork, Fork{rref, owner, state, nullptr, {}}).second;
  return fresh ? Arrival::kTaken : Arrival::kRefused;
}

std::optional<SendAddFork> UserTable::Shared(ForkId fork, ForkId new_fork, WorkerId holder) const {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return std::nullopt;
  assert(holder != at->second.owner);  // rule 2: the owner needs no fork
  return SendAddFork{at->second.owner, at->second.rref, new_fork, holder};
}

UserTable::Actions UserTable::Confirm(ForkId fork, Waiter waiter) {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return {AnswerConfirm{waiter, HandleDropped()}};
  Fork& held = at->second;
  if (held.state == State::kConfirmed) return {AnswerConfirm{waiter, nullptr}};
  held.waiting.push_back(waiter);
  if (held.state != State::kUnconfirmed) return {};
  held.state = State::kAsking;
  return {SendConfirm{held.owner, held.rref, fork}};
}

UserTable::Actions UserTable::ConfirmReplied(ForkId fork, std::shared_ptr<const Failure> failure) {
  const State state = failure ? State::kUnconfirmed : State::kConfirmed;
  return Ended(fork, state, std::move(failure));
}

UserTable::Actions UserTable::Dropped(ForkId fork) {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return {};
  Actions actions = {SendDropFork{at->second.owner, at->second.rref, fork}};
  for (const Waiter waiter : at->second.waiting) actions.push_back(AnswerConfirm{waiter, HandleDropped()});
  forks_.erase(at);
  return actions;
}

UserTable::Actions UserTable::Reconcile(WorkerId owner, WorkerId about, Waiter waiter) {
  if (lost_.contains(about) || lost_.contains(owner)) return {AnswerReconcile{waiter, Gifts(owner, about)}};
  questions_.push_back({owner, about, waiter});
  return {Probe{about}};
}

UserTable::Actions UserTable::PeerLost(WorkerId peer) {
  Actions actions;
  lost_.insert(peer);
  std::erase_if(questions_, [&](const Question& question) {
    if (question.about != peer && question.owner != peer) return false;
    actions.push_back(AnswerReconcile{question.waiter, Gifts(question.owner, question.about)});
    return true;
  });
  return actions;
}

// Sorted, so that equal states act equally.
std::vector<Gift> UserTable::Gifts(WorkerId owner, WorkerId maker) const {
  std::vector<Gift> gifts;
  for (const auto& [fork, held] : forks_) {
    if (held.owner == owner && fork.creator == maker) gifts.push_back({held.rref, fork});
  }
  std::sort(gifts.begin(), gifts.end(), [](const Gift& a, const Gift& b) { return a.fork < b.fork; });
  return gifts;
}

const UserTable::Fork* UserTable::Find(ForkId fork) const {
  const auto at = forks_.find(fork);
  return at == forks_.end() ? nullptr : &at->second;
}

UserTable::Counts UserTable::counts() const {
  Counts counts;
  counts.forks = forks_.size();
  for (const auto& [fork, held] : forks_) {
    counts.creating += held.state == State::kCreating;
    counts.waiting += held.waiting.size();
  }
  counts.asked = questions_.size();
  return counts;
}

std::vector<ForkId> UserTable::Forks() const {
  std::vector<ForkId> forks;
  forks.reserve(forks_.size());
  for (const auto& [fork, held] : forks_) forks.push_back(fork);
  std::sort(forks.begin(), forks.end());
  return forks;
}

std::string UserTable::Encoding() const {
  std::string out;
  for (const ForkId& fork : Forks()) {
    const Fork& held = forks_.at(fork);
    Append(out, fork);
    Append(out, held.rref);
    Append(out, held.owner);
    AppendNumber(out, static_cast<uint64_t>(held.state) << 1 | (held.creation_failure ? 1 : 0));
    AppendNumber(out, held.waiting.size());
    for (const Waiter waiter : held.waiting) AppendNumber(out, waiter);
  }
  AppendNumber(out, lost_.size());
  for (const WorkerId peer : lost_) Append(out, peer);
  for (const Question& question : questions_) {
    Append(out, question.owner);
    Append(out, question.about);
    AppendNumber(out, question.waiter);
  }
  return out;
}

// The waiters learn what became of their question.
UserTable::Actions UserTable::Ended(ForkId fork, State state, std::shared_ptr<const Failure> wait_failure) {
  const auto at = forks_.find(fork);
  if (at == forks_.end()) return {};  // dropped meanwhile, and its waiters told so
  at->second.state = state;
  Actions actions;
  for (const Waiter waiter : std::exchange(at->second.waiting, {})) {
    actions.push_back(AnswerConfirm{waiter, wait_failure});
  }
  return actions;
}

}  // namespace gradwire::rref
