// The steps of OwnerTable, apart from its declaration so that tests can build it with a rule switched off.
#pragma once

#include <algorithm>
#include <cassert>

#include "rref/canonical.h"
#include "rref/owner_table.h"

namespace gradwire::rref {

template <class Rules>
auto BasicOwnerTable<Rules>::Create(RRefId rref, ForkId fork, WorkerId holder) -> std::optional<Actions> {
  if (rref.creator != holder || fork.creator != holder || holder == self_) return std::nullopt;
  const auto [newest, first] = created_up_to_.try_emplace(holder, rref.number);
  if (!first) {
    if (rref.number <= newest->second) return std::nullopt;
    newest->second = rref.number;
  }
  Actions actions;
  if (closed_) return actions;
  Entry& entry = entries_[rref];  // there already when others' messages about it were faster
  entry.created = true;
  Register(entry, fork, holder, actions);
  Settle(rref, actions);
  return actions;
}

template <class Rules>
void BasicOwnerTable<Rules>::CreateLocal(RRefId rref) {
  assert(rref.creator == self_);
  if (closed_) return;
  const auto [at, created] = entries_.try_emplace(rref);
  assert(created);
  static_cast<void>(created);
  at->second.created = true;
  at->second.holds = 1;
}

template <class Rules>
auto BasicOwnerTable<Rules>::SetValue(RRefId rref, Result result) -> Actions {
  assert(!result.pending());
  Actions actions;
  const auto at = entries_.find(rref);
  if (at == entries_.end()) {  // all handles were dropped while it was made
    if (result.value) actions.push_back(Free{std::move(result.value)});
    return actions;
  }
  Entry& entry = at->second;
  assert(entry.created);
  if (!entry.result.pending()) {  // the call that was to make it was given up before
    if (result.value) actions.push_back(Free{std::move(result.value)});
    return actions;
  }
  entry.result = std::move(result);
  for (const Waiter waiter : entry.fetches) actions.push_back(AnswerFetch{waiter, entry.result});
  entry.fetches.clear();
  Settle(rref, actions);
  return actions;
}

template <class Rules>
auto BasicOwnerTable<Rules>::AddFork(RRefId rref, ForkId fork, WorkerId holder) -> Actions {
  Actions actions;
  if (IsLost(fork.creator)) return actions;  // its last message has been handled
  if (Entry* entry = FindOrExpect(rref)) {
    if (IsLost(holder) && Rules::kRefuseForksForTheLost) {
      // The maker did not know of the loss. Its own fork stands for this one only until its drop arrives.
      if (entry->tombstones.erase(fork) == 0 && Rules::kDoubtLateForks) Doubt(*entry, actions);
      Registered(*entry, fork, actions);
    } else {
      Register(*entry, fork, holder, actions);
    }
    Settle(rref, actions);
  }
  return actions;
}

template <class Rules>
Standing BasicOwnerTable<Rules>::GiveFork(RRefId rref, ForkId fork, WorkerId holder) {
  Entry* entry = FindOrExpect(rref);
  if (!entry) return Standing::kNoLonger;
  if (IsLost(holder)) return standing(rref);  // its session has ended under this send step: the message goes nowhere
  const bool added = entry->forks.emplace(fork, holder).second;
  assert(added);
  static_cast<void>(added);
  return standing(rref);
}

template <class Rules>
auto BasicOwnerTable<Rules>::DropFork(RRefId rref, ForkId fork, WorkerId holder) -> Actions {
  Actions actions;
  if (IsLost(holder)) return actions;
  Entry* entry = FindOrExpect(rref);
  if (!entry && !Rules::kForgetWhatIsGone) entry = &entries_[rref];
  if (!entry) return actions;
  // Forks of a lost maker are not added any more, but their holder's answer may name them, and come after the drop.
  const bool in_answer = IsAwaited(holder, fork.creator) && Rules::kDropsMeetAnswers;
  const bool is_early = entry->forks.erase(fork) == 0 && !IsLost(fork.creator);
  if ((is_early || in_answer) && Rules::kRememberEarlyDrops) entry->tombstones.insert(fork);
  Settle(rref, actions);
  return actions;
}

template <class Rules>
Standing BasicOwnerTable<Rules>::Hold(RRefId rref) {
  if (Entry* entry = FindOrExpect(rref)) ++entry->holds;
  return standing(rref);
}

template <class Rules>
auto BasicOwnerTable<Rules>::Release(RRefId rref) -> Actions {
  Actions actions;
  const auto at = entries_.find(rref);
  if (at == entries_.end()) return actions;  // a handle that outlives Close
  assert(at->second.holds > 0);
  --at->second.holds;
  Settle(rref, actions);
  return actions;
}

template <class Rules>
auto BasicOwnerTable<Rules>::Fetch(RRefId rref, Waiter waiter) -> Actions {
  const Standing before = standing(rref);
  if (before == Standing::kNoLonger || (before == Standing::kNotYet && !Rules::kFetchWaitsForCreation)) {
    return {AnswerFetch{waiter, Result{nullptr, WhyNoLonger(rref)}}};
  }
  Entry& entry = entries_[rref];
  if (!entry.result.pending()) return {AnswerFetch{waiter, entry.result}};
  entry.fetches.push_back(waiter);
  return {};
}

template <class Rules>
auto BasicOwnerTable<Rules>::Confirm(RRefId rref, ForkId fork, Waiter waiter) -> Actions {
  Entry* entry = FindOrExpect(rref);
  if (!entry) return {AnswerConfirm{waiter, WhyNoLonger(rref)}};
  if (entry->forks.contains(fork) || !Rules::kConfirmWaitsForAdd) return {AnswerConfirm{waiter, nullptr}};
  Actions actions;
  if (IsLost(fork.creator)) {
    if (!AnswersComeAbout(fork.creator)) return {AnswerConfirm{waiter, WhyNoLonger(rref)}};
    NeedRounds(actions);  // the one who asks will be asked, and will name it
  }
  entry->confirms.emplace_back(fork, waiter);
  return actions;
}

template <class Rules>
auto BasicOwnerTable<Rules>::Close(const std::shared_ptr<const Failure>& why) -> Actions {
  Actions actions;
  for (auto& [rref, entry] : entries_) {
    for (const Waiter waiter : entry.fetches) actions.push_back(AnswerFetch{waiter, Result{nullptr, why}});
    for (const auto& [fork, waiter] : entry.confirms) actions.push_back(AnswerConfirm{waiter, why});
    if (entry.result.value) actions.push_back(Free{std::move(entry.result.value)});
  }
  entries_.clear();
  unasked_.clear();
  rounds_.clear();
  needs_members_ = false;
  closed_ = why;
  return actions;
}

// The entry that a message about `rref` concerns: made when the creating call is still to come (rule 7), null when the
// value is gone.
template <class Rules>
auto BasicOwnerTable<Rules>::FindOrExpect(RRefId rref) -> Entry* {
  return standing(rref) == Standing::kNoLonger ? nullptr : &entries_[rref];
}

template <class Rules>
std::shared_ptr<const Failure> BasicOwnerTable<Rules>::WhyNoLonger(RRefId rref) const {
  if (closed_) return closed_;
  const auto lost = lost_.find(rref.creator);
  const auto newest = created_up_to_.find(rref.creator);
  const bool was_made = newest != created_up_to_.end() && rref.number <= newest->second;
  if (lost == lost_.end() || was_made) return std::make_shared<const Failure>(Gone(rref));
  return std::make_shared<const Failure>(NeverMade(rref, *lost->second));
}

template <class Rules>
void BasicOwnerTable<Rules>::Register(Entry& entry, ForkId fork, WorkerId holder, Actions& actions) {
  if (entry.tombstones.erase(fork) == 0) entry.forks.emplace(fork, holder);
  Registered(entry, fork, actions);
}

// Answers who asked for it. Also when the fork was dropped already: the question is whether the owner has heard of it.
template <class Rules>
void BasicOwnerTable<Rules>::Registered(Entry& entry, ForkId fork, Actions& actions) {
  std::erase_if(entry.confirms, [&](const auto& confirm) {
    if (confirm.first != fork) return false;
    actions.push_back(AnswerConfirm{confirm.second, nullptr});
    return true;
  });
}

// Frees a value that nothing holds, with its tombstones, and forgets an entry about which there is nothing to remember.
template <class Rules>
void BasicOwnerTable<Rules>::Settle(RRefId rref, Actions& actions) {
  const auto at = entries_.find(rref);
  Entry& entry = at->second;
  if (!entry.forks.empty() || entry.holds > 0 || entry.in_doubt) return;
  if (!entry.fetches.empty() && (Rules::kFetchKeepsTheValue || !entry.created)) return;
  if (!entry.created && !(entry.tombstones.empty() && entry.confirms.empty())) return;
  if (!entry.confirms.empty()) {  // the fork never came: dropped by force meanwhile, or its holder breaks the rules
    const auto gone = WhyNoLonger(rref);
    for (const auto& [fork, waiter] : entry.confirms) actions.push_back(AnswerConfirm{waiter, gone});
  }
  if (entry.result.value) actions.push_back(Free{std::move(entry.result.value)});
  entries_.erase(at);
}

template <class Rules>
Standing BasicOwnerTable<Rules>::standing(RRefId rref) const {
  if (closed_) return Standing::kNoLonger;
  const auto at = entries_.find(rref);
  if (at != entries_.end()) return at->second.created ? Standing::kHere : Standing::kNotYet;
  if (rref.creator == self_) return Standing::kNoLonger;  // it was in the table before anybody could name it
  if (IsLost(rref.creator)) return Standing::kNoLonger;   // it creates nothing any more
  const auto newest = created_up_to_.find(rref.creator);
  const bool created = newest != created_up_to_.end() && rref.number <= newest->second;
  return created ? Standing::kNoLonger : Standing::kNotYet;
}

template <class Rules>
bool BasicOwnerTable<Rules>::has_fork(RRefId rref, ForkId fork) const {
  const auto at = entries_.find(rref);
  return at != entries_.end() && at->second.forks.contains(fork);
}

template <class Rules>
size_t BasicOwnerTable<Rules>::fork_count(RRefId rref) const {
  const auto at = entries_.find(rref);
  return at == entries_.end() ? 0 : at->second.forks.size();
}

template <class Rules>
size_t BasicOwnerTable<Rules>::hold_count(RRefId rref) const {
  const auto at = entries_.find(rref);
  return at == entries_.end() ? 0 : at->second.holds;
}

template <class Rules>
bool BasicOwnerTable<Rules>::in_doubt(RRefId rref) const {
  const auto at = entries_.find(rref);
  return at != entries_.end() && at->second.in_doubt;
}

template <class Rules>
auto BasicOwnerTable<Rules>::HeldByOthers() const -> std::vector<Held> {
  std::vector<Held> held;
  for (const auto& [rref, entry] : entries_) {
    Held one{rref, standing(rref), {}};
    for (const auto& [fork, holder] : entry.forks) {
      if (holder != self_) one.forks.emplace(fork, holder);
    }
    if (!one.forks.empty()) held.push_back(std::move(one));
  }
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.rref < b.rref; });
  return held;
}

template <class Rules>
auto BasicOwnerTable<Rules>::counts() const -> Counts {
  Counts counts;
  for (const auto& [rref, entry] : entries_) {
    ++counts.entries;
    counts.with_forks +=
        std::any_of(entry.forks.begin(), entry.forks.end(), [this](const auto& fork) { return fork.second != self_; });
    counts.pending += entry.created && entry.result.pending();
    counts.not_yet += !entry.created;
    counts.forks += entry.forks.size();
    counts.holds += entry.holds;
    counts.tombstones += entry.tombstones.size();
    counts.waiting += entry.fetches.size() + entry.confirms.size();
    counts.in_doubt += entry.in_doubt;
  }
  for (const auto& [about, awaited] : rounds_) counts.awaited += awaited.size();
  return counts;
}

template <class Rules>
std::string BasicOwnerTable<Rules>::Encoding() const {
  std::string out;
  AppendNumber(out, closed_ ? 1 : 0);
  const std::map<WorkerId, uint64_t> creators(created_up_to_.begin(), created_up_to_.end());
  AppendNumber(out, creators.size());
  for (const auto& [creator, newest] : creators) {
    Append(out, creator);
    AppendNumber(out, newest);
  }
  AppendNumber(out, lost_.size());
  for (const auto& [peer, why] : lost_) {
    Append(out, peer);
    AppendNumber(out, unasked_.contains(peer) ? 1 : 0);
  }
  AppendNumber(out, needs_members_ ? 1 : 0);
  AppendNumber(out, rounds_.size());
  for (const auto& [about, awaited] : rounds_) {
    Append(out, about);
    AppendNumber(out, awaited.size());
    for (const WorkerId whom : awaited) Append(out, whom);
  }
  std::vector<RRefId> rrefs;
  for (const auto& [rref, entry] : entries_) rrefs.push_back(rref);
  std::sort(rrefs.begin(), rrefs.end());
  for (const RRefId& rref : rrefs) {
    Append(out, rref);
    Encode(entries_.at(rref), out);
  }
  return out;
}

template <class Rules>
void BasicOwnerTable<Rules>::Encode(const Entry& entry, std::string& out) {
  AppendNumber(out, (entry.created ? 1 : 0) | (entry.result.value ? 2 : 0) | (entry.result.failure ? 4 : 0) |
                        (entry.in_doubt ? 8 : 0));
  AppendNumber(out, entry.forks.size());
  for (const auto& [fork, holder] : entry.forks) {
    Append(out, fork);
    Append(out, holder);
  }
  AppendNumber(out, entry.tombstones.size());
  for (const ForkId& fork : entry.tombstones) Append(out, fork);
  AppendNumber(out, entry.holds);
  AppendNumber(out, entry.fetches.size());
  for (const Waiter waiter : entry.fetches) AppendNumber(out, waiter);
  AppendNumber(out, entry.confirms.size());
  for (const auto& [fork, waiter] : entry.confirms) {
    Append(out, fork);
    AppendNumber(out, waiter);
  }
}

}  // namespace gradwire::rref

#include "rref/owner_loss_inl.h"
