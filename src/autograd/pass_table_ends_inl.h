// The steps of PassTable that end a pass otherwise than by its commit: failures, aborts, losses, the end of the worker.
#pragma once

#include <utility>

#include "autograd/pass_table.h"
#include "rref/canonical.h"

namespace gradwire::autograd {

template <class Rules>
void BasicPassTable<Rules>::Fail(const PassKey& pass, Part& part, const FailurePtr& why, Actions& actions) {
  if (part.phase != Phase::kOpen && part.phase != Phase::kDone) return;
  if (part.stage) return BeginAbort(pass, part, why, actions);
  part.phase = Phase::kFailed;
  part.failure = why;
  if (IsLoss(*why)) actions.push_back(Poison{pass.context, why});
  actions.push_back(Stop{pass});
  RefuseAskers(part, actions);
}

// Those who wait for an answer have it: the pass will not come to a good end.
template <class Rules>
void BasicPassTable<Rules>::RefuseAskers(Part& part, Actions& actions) {
  for (const auto& [asker, below] : part.walks) {
    if (asker != kNobody && Rules::kRefuseWhenFailing) AnswerTo(asker, part.failure, actions);
  }
  part.walks.clear();
  if (part.run_asker != kNobody) AnswerTo(std::exchange(part.run_asker, kNobody), part.failure, actions);
}

template <class Rules>
void BasicPassTable<Rules>::BeginAbort(const PassKey& pass, Part& part, const FailurePtr& why, Actions& actions) {
  if (part.phase == Phase::kAborting || part.phase == Phase::kCommitted) return;
  const bool may_be_half_committed = part.stage == Stage::kCommitting && Rules::kPoisonWhenHalfCommitted;
  if (part.phase != Phase::kFailed) {
    part.failure = why;
    if (IsLoss(*why) || may_be_half_committed) actions.push_back(Poison{pass.context, why});
    actions.push_back(Stop{pass});
  }
  // The starter may have asked already, or ask only now.
  if (!part.stage && IsLoss(*part.failure) && Rules::kTellWhyItEnded) ended_[pass.context] = {pass.id, part.failure};
  part.phase = Phase::kAborting;
  RefuseAskers(part, actions);
  if (Rules::kAbortAlongMarks) part.aborting = part.marked;
  // Directly as well, since one that has committed already does not pass it on.
  part.aborting.insert(part.others.begin(), part.others.end());
  for (const WorkerId& peer : part.aborting) {
    actions.push_back(Ask{Question::kAbort, pass, peer, kNobody, false, {}, part.failure});
  }
  Settle(pass, part, actions);
}

// The end of an abort here: no node runs, and those that were told have answered or are gone.
template <class Rules>
void BasicPassTable<Rules>::Settle(const PassKey& pass, Part& part, Actions& actions) {
  if (part.phase != Phase::kAborting || !part.aborting.empty()) return;
  if (part.active > 0 && Rules::kAbortAwaitsNodes) return;
  for (const Asker asker : part.abort_askers) AnswerTo(asker, nullptr, actions);
  if (part.stage && !part.abandoned) actions.push_back(End{pass, part.failure});
  actions.push_back(Forget{pass});
  parts_.erase(pass.context);
}

template <class Rules>
auto BasicPassTable<Rules>::AbortAsked(const PassKey& pass, Asker asker, const FailurePtr& why) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (part && part->phase == Phase::kCommitted && !part->stage) {  // until the gradients have joined
    part->abort_askers.push_back(asker);
    return actions;
  }
  // One that is under way already is not waited for: two that marked each other would wait for ever.
  if (!part || part->phase == Phase::kAborting || part->phase == Phase::kCommitted) {
    AnswerTo(asker, nullptr, actions);
    return actions;
  }
  part->abort_askers.push_back(asker);
  BeginAbort(pass, *part, why, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::AbortAnswered(const PassKey& pass, WorkerId from) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part || part->aborting.erase(from) == 0) return actions;
  Settle(pass, *part, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::Failed(const PassKey& pass, const FailurePtr& why) -> Actions {
  Actions actions;
  if (Part* const part = Find(pass)) Fail(pass, *part, why, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::ContextReleased(ContextId context, const FailurePtr& why) -> Actions {
  Actions actions;
  ended_.erase(context);
  const auto at = parts_.find(context);
  if (at == parts_.end()) return actions;
  const PassKey pass{context, at->second.id};
  Fail(pass, at->second, why, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::PeerLost(WorkerId peer, const FailurePtr& why) -> Actions {
  Actions actions;
  std::vector<PassKey> passes;  // parts may go meanwhile
  for (const auto& [context, part] : parts_) passes.push_back({context, part.id});
  for (const PassKey& pass : passes) LosePeer(pass, *Find(pass), peer, why, actions);
  return actions;
}

template <class Rules>
void BasicPassTable<Rules>::LosePeer(const PassKey& pass, Part& part, WorkerId peer, const FailurePtr& why,
                                     Actions& actions) {
  if (part.phase == Phase::kAborting) {
    if (part.aborting.erase(peer) > 0) Settle(pass, part, actions);
    return;
  }
  const bool is_marker = part.markers.contains(peer.rank);
  const bool is_known = part.stage || part.run_asked;
  if (part.stage) {
    if (part.marked.contains(peer) || part.others.contains(peer) || is_marker) Fail(pass, part, why, actions);
  } else if (pass.id.starter == peer) {
    if (Rules::kEndWithTheStarter) BeginAbort(pass, part, why, actions);
  } else if (part.phase == Phase::kDone) {
    // The starter knows of this part, and sees the loss itself.
  } else if (is_marker && !is_known) {
    // The starter may never hear of this part, and nobody else is left to end it.
    if (Rules::kEndWithAMarker) BeginAbort(pass, part, why, actions);
  } else if (is_marker || part.marked.contains(peer)) {
    Fail(pass, part, why, actions);
  }
}

template <class Rules>
auto BasicPassTable<Rules>::Close(const FailurePtr& why) -> Actions {
  Actions actions;
  if (closed_) return actions;
  closed_ = why;
  for (auto& [context, part] : parts_) {
    const PassKey pass{context, part.id};
    part.failure = why;
    actions.push_back(Stop{pass});
    RefuseAskers(part, actions);
    const bool joins = part.phase == Phase::kCommitted;  // its thread has been told of the end
    if (part.stage && !part.abandoned && !joins && Rules::kCloseEndsWaits) actions.push_back(End{pass, why});
    for (const Asker asker : part.abort_askers) AnswerTo(asker, nullptr, actions);
    actions.push_back(Forget{pass});
  }
  parts_.clear();
  ended_.clear();
  return actions;
}

template <class Rules>
bool BasicPassTable<Rules>::Has(const PassKey& pass) const {
  return Find(pass) != nullptr;
}

template <class Rules>
std::pair<size_t, size_t> BasicPassTable<Rules>::progress(const PassKey& pass) const {
  const Part* const part = Find(pass);
  if (!part) return {0, 0};
  return {part->entries.size(), part->entries.size() - part->missing};
}

template <class Rules>
std::string BasicPassTable<Rules>::Encoding() const {
  std::string out;
  rref::AppendNumber(out, closed_ ? 1 : 0);
  rref::AppendNumber(out, ended_.size());
  for (const auto& [context, ended] : ended_) {
    rref::AppendNumber(out, static_cast<uint64_t>(context));
    rref::Append(out, ended.first.starter);
    rref::AppendNumber(out, ended.first.number);
    rref::AppendNumber(out, static_cast<uint64_t>(ended.second->code));
  }
  for (const auto& [context, part] : parts_) {
    rref::AppendNumber(out, static_cast<uint64_t>(context));
    Encode(part, out);
  }
  return out;
}

template <class Rules>
void BasicPassTable<Rules>::Encode(const Part& part, std::string& out) {
  const auto put_all = [&out](const auto& ids) {
    rref::AppendNumber(out, ids.size());
    for (const auto& id : ids) rref::Append(out, id);
  };
  const auto put_numbers = [&out](const auto& numbers) {
    rref::AppendNumber(out, numbers.size());
    for (const auto number : numbers) rref::AppendNumber(out, number);
  };
  rref::Append(out, part.id.starter);
  rref::AppendNumber(out, part.id.number);
  rref::AppendNumber(out, (part.retain_graph ? 1 : 0) | (part.adding_up ? 2 : 0) | (part.run_asked ? 4 : 0) |
                              (part.abandoned ? 8 : 0) | static_cast<uint64_t>(part.phase) << 4);
  rref::AppendNumber(out, part.failure ? static_cast<uint64_t>(part.failure->code) : 0);
  rref::AppendNumber(out, part.stage ? 1 + static_cast<uint64_t>(*part.stage) : 0);
  rref::AppendNumber(out, part.walks.size());
  for (const auto& [asker, below] : part.walks) {
    rref::AppendNumber(out, asker << 1 | (below.walking ? 1 : 0));
    put_all(below.unanswered);
    put_all(below.workers);
  }
  rref::AppendNumber(out, part.entries.size());
  for (const auto& [message, entry] : part.entries) {
    rref::Append(out, message);
    rref::AppendNumber(out, static_cast<uint64_t>(entry));
  }
  put_numbers(std::vector<size_t>{part.unanswered, part.active, part.run_asker});
  put_all(part.marked);
  put_numbers(part.markers);
  put_numbers(part.abort_askers);
  put_all(part.aborting);
  put_all(part.others);
  put_all(part.awaited);
}

}  // namespace gradwire::autograd
