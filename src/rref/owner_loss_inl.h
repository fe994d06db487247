// The steps of OwnerTable when workers are lost (rule 8 of docs/rref.md). Part of owner_table_inl.h.
#pragma once

#include "rref/owner_table.h"

namespace gradwire::rref {

template <class Rules>
auto BasicOwnerTable<Rules>::PeerLost(WorkerId peer, std::shared_ptr<const Failure> why) -> Actions {
  Actions actions;
  if (closed_ || !lost_.emplace(peer, std::move(why)).second) return actions;
  if (!Rules::kAskAboutEarlierLosses) unasked_.clear();
  unasked_.insert(peer);
  std::vector<RRefId> touched;
  for (auto& [rref, entry] : entries_) {
    if (ForgetLost(peer, rref, entry, actions)) touched.push_back(rref);
  }
  for (const RRefId& rref : touched) Settle(rref, actions);
  // It may have held gifts of another lost worker, and passed them on: what is in doubt about that one is about it too.
  for (auto& [about, awaited] : rounds_) {
    if (awaited.erase(peer) > 0 && Rules::kDoubtWhoHasNotAnswered) NeedRounds(actions);
  }
  EndRounds(actions);
  return actions;
}

// Whether the entry has changed.
template <class Rules>
bool BasicOwnerTable<Rules>::ForgetLost(WorkerId peer, RRefId rref, Entry& entry, Actions& actions) {
  bool changed = false;
  if (!entry.created && rref.creator == peer) {
    entry.created = true;
    entry.result = Result{nullptr, WhyNoLonger(rref)};
    for (const Waiter waiter : entry.fetches) actions.push_back(AnswerFetch{waiter, entry.result});
    entry.fetches.clear();
    changed = true;
  }
  const auto held = [&](const auto& fork) { return fork.second == peer; };
  if (Rules::kForgetForksOfTheLost && std::erase_if(entry.forks, held) > 0) {
    if (Rules::kDoubtWhatTheLostHeld) Doubt(entry, actions);
    changed = true;
  }
  // A fork that it made counts, but may never have reached its holder.
  for (const auto& [fork, holder] : entry.forks) {
    if (fork.creator == peer) NeedRounds(actions);
  }
  for (const auto& [fork, waiter] : entry.confirms) {
    if (fork.creator == peer) NeedRounds(actions);
  }
  const auto awaits = [&](const ForkId& fork) { return fork.creator == peer; };
  if (Rules::kForgetDropsAwaitingTheLost && std::erase_if(entry.tombstones, awaits) > 0) changed = true;
  return changed;
}

// Once everyone has answered there is nothing to doubt: then only one that the group has let in since could have sent
// this, and it has never met a worker that was lost before.
template <class Rules>
void BasicOwnerTable<Rules>::Doubt(Entry& entry, Actions& actions) {
  entry.in_doubt = !unasked_.empty() || !rounds_.empty() || needs_members_;
  NeedRounds(actions);
}

template <class Rules>
void BasicOwnerTable<Rules>::NeedRounds(Actions& actions) {
  if (unasked_.empty() || needs_members_) return;
  needs_members_ = true;
  actions.push_back(NeedMembers{});
}

template <class Rules>
auto BasicOwnerTable<Rules>::BeginRounds(const std::vector<WorkerId>& members) -> Actions {
  Actions actions;
  if (!needs_members_) return actions;  // closed meanwhile
  needs_members_ = false;
  for (const WorkerId about : std::exchange(unasked_, {})) {
    std::set<WorkerId>& awaited = rounds_[about];
    for (const WorkerId whom : members) {
      if (whom == self_ || IsLost(whom)) continue;
      awaited.insert(whom);
      actions.push_back(AskReconcile{whom, about});
    }
  }
  EndRounds(actions);
  return actions;
}

template <class Rules>
auto BasicOwnerTable<Rules>::Reconciled(WorkerId from, WorkerId about, const std::vector<Gift>& gifts) -> Actions {
  Actions actions;
  const auto round = rounds_.find(about);
  if (round == rounds_.end() || round->second.erase(from) == 0) return actions;
  std::set<ForkId> named;
  for (const Gift& gift : gifts) named.insert(gift.fork);
  std::set<RRefId> touched;
  for (auto& [rref, entry] : entries_) {
    const auto undelivered = [&](const auto& fork) {
      return fork.first.creator == about && fork.second == from && !named.contains(fork.first);
    };
    if (Rules::kAnswersReplace && std::erase_if(entry.forks, undelivered) > 0) touched.insert(rref);
  }
  for (const Gift& gift : gifts) {
    Entry* entry = gift.fork.creator == about ? FindOrExpect(gift.rref) : nullptr;
    if (!entry) continue;
    Register(*entry, gift.fork, from, actions);
    touched.insert(gift.rref);
  }
  for (const RRefId& rref : touched) Settle(rref, actions);
  if (!Rules::kAwaitAllAnswers) round->second.clear();
  EndRounds(actions);
  return actions;
}

// Doubts last as long as any round: a lost worker may have had a value from another lost one.
template <class Rules>
void BasicOwnerTable<Rules>::EndRounds(Actions& actions) {
  std::set<WorkerId> settled;
  for (const auto& [about, awaited] : rounds_) {
    if (awaited.empty()) settled.insert(about);
  }
  if (settled.empty()) return;
  for (const WorkerId about : settled) rounds_.erase(about);
  EndDoubts(settled, actions);
}

template <class Rules>
void BasicOwnerTable<Rules>::EndDoubts(const std::set<WorkerId>& settled, Actions& actions) {
  const bool certain = (rounds_.empty() && !needs_members_) || !Rules::kAwaitAllRounds;
  std::vector<RRefId> touched;
  for (auto& [rref, entry] : entries_) {
    size_t changes =
        std::erase_if(entry.tombstones, [&](const ForkId& fork) { return settled.contains(fork.creator); });
    changes += std::erase_if(entry.confirms, [&, id = rref](const auto& confirm) {
      if (!settled.contains(confirm.first.creator)) return false;
      actions.push_back(AnswerConfirm{confirm.second, WhyNoLonger(id)});
      return true;
    });
    if (certain && std::exchange(entry.in_doubt, false)) ++changes;
    if (changes > 0) touched.push_back(rref);
  }
  for (const RRefId& rref : touched) Settle(rref, actions);
}

}  // namespace gradwire::rref
