// The steps of PassTable, apart from its declaration so that tests can build it with a rule switched off.
#pragma once

#include <algorithm>
#include <utility>

#include "autograd/pass_table.h"
#include "rref/canonical.h"

namespace gradwire::autograd {

inline FailurePtr MakeFailure(ErrorCode code, std::string text) {
  return std::make_shared<const Failure>(Failure{.code = code, .text = std::move(text)});
}

template <class Rules>
auto BasicPassTable<Rules>::Find(const PassKey& pass) -> Part* {
  const auto at = parts_.find(pass.context);
  return at != parts_.end() && at->second.id == pass.id ? &at->second : nullptr;
}

template <class Rules>
auto BasicPassTable<Rules>::Find(const PassKey& pass) const -> const Part* {
  return const_cast<BasicPassTable*>(this)->Find(pass);
}

template <class Rules>
FailurePtr BasicPassTable<Rules>::WhyNotHere(const PassKey& pass) const {
  if (closed_) return closed_;
  const auto ended = ended_.find(pass.context);
  if (ended != ended_.end() && ended->second.first == pass.id) return ended->second.second;
  return MakeFailure(ErrorCode::kCancelled, "the backward pass has ended here already");
}

template <class Rules>
void BasicPassTable<Rules>::AnswerTo(Asker asker, FailurePtr failure, Actions& actions, std::set<WorkerId> workers) {
  // Made in place: gcc 12 takes the move of a temporary one for a use of what was never set.
  auto& answer = std::get<Answer>(actions.emplace_back(std::in_place_type<Answer>));
  answer.asker = asker;
  answer.failure = std::move(failure);
  answer.workers = std::move(workers);
}

// The starter.

template <class Rules>
FailurePtr BasicPassTable<Rules>::Begin(const PassKey& pass, bool retain_graph) {
  if (closed_) return closed_;
  ended_.erase(pass.context);
  const auto [at, is_new] = parts_.try_emplace(pass.context);
  if (!is_new) {
    return MakeFailure(ErrorCode::kInvalid, "a backward pass started by worker " +
                                                std::to_string(at->second.id.starter.rank) +
                                                " runs in autograd context " + std::to_string(pass.context) +
                                                " already: one at a time");
  }
  Part& part = at->second;
  part.id = pass.id;
  part.retain_graph = retain_graph;
  part.stage = Stage::kMarking;
  part.active = 1;
  part.walks[kNobody];
  return nullptr;
}

template <class Rules>
auto BasicPassTable<Rules>::Abandon(const PassKey& pass, const FailurePtr& why) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  part->abandoned = true;
  if (part->phase == Phase::kCommitted) {  // the others have added their gradients, this worker does not
    actions.push_back(Poison{pass.context, why});
    actions.push_back(Forget{pass});
    parts_.erase(pass.context);
    return actions;
  }
  Fail(pass, *part, why, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::Joined(const PassKey& pass, const FailurePtr& failure) -> Actions {
  Actions actions;
  if (failure) actions.push_back(Poison{pass.context, failure});
  if (!Find(pass)) return actions;
  actions.push_back(Forget{pass});
  parts_.erase(pass.context);
  return actions;
}

// Marking.

template <class Rules>
auto BasicPassTable<Rules>::Marked(const PassKey& pass, bool retain_graph, uint32_t marker, Asker asker) -> Admission {
  Admission admission;
  if (closed_) {
    AnswerTo(asker, closed_, admission.actions);
    return admission;
  }
  if (const auto ended = ended_.find(pass.context); ended != ended_.end()) {
    if (ended->second.first == pass.id) {
      AnswerTo(asker, ended->second.second, admission.actions);
      return admission;
    }
    ended_.erase(ended);
  }
  const auto [at, is_new] = parts_.try_emplace(pass.context);
  Part& part = at->second;
  if (is_new) {
    part.id = pass.id;
    part.retain_graph = retain_graph;
  }
  FailurePtr refusal;
  if (part.id != pass.id) {
    refusal = MakeFailure(ErrorCode::kInvalid, "a backward pass started by worker " +
                                                   std::to_string(part.id.starter.rank) + " runs in autograd context " +
                                                   std::to_string(pass.context) + " already: one at a time");
  } else if (part.phase != Phase::kOpen) {
    refusal = part.failure ? part.failure : WhyNotHere(pass);
  } else if (std::any_of(part.entries.begin(), part.entries.end(),
                         [](const auto& entry) { return entry.second != Entry::kMarked; })) {
    refusal = MakeFailure(ErrorCode::kInvalid, "a mark came for a backward pass that runs");
    Fail(pass, part, refusal, admission.actions);
  }
  if (refusal) {
    AnswerTo(asker, refusal, admission.actions);
    return admission;
  }
  admission.walks = true;
  ++part.active;
  part.walks[asker];
  part.markers.insert(marker);
  return admission;
}

template <class Rules>
auto BasicPassTable<Rules>::Walked(const PassKey& pass, Asker walk, Walk result) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  --part->active;
  if (result.failure) {
    Fail(pass, *part, result.failure, actions);
  } else if (part->phase == Phase::kOpen) {
    for (const MessageId& message : result.counted) {
      if (part->entries.try_emplace(message, Entry::kMarked).second) ++part->missing;
    }
    Below& below = part->walks.at(walk);
    below.walking = false;
    below.workers.insert(self_);
    for (auto& [peer, messages] : result.reached) {
      part->marked.insert(peer);
      below.unanswered.insert(peer);
      actions.push_back(Ask{Question::kMark, pass, peer, walk, part->retain_graph, std::move(messages), nullptr});
    }
    if (below.unanswered.empty() || !Rules::kAnswerWhenAllBelowHave) CompleteWalk(pass, *part, walk, actions);
    return actions;
  }
  if (Part* const still = Find(pass)) Settle(pass, *still, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::MarkAnswered(const PassKey& pass, Asker walk, WorkerId from, const FailurePtr& failure,
                                         const std::set<WorkerId>& workers) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  if (failure) {
    Fail(pass, *part, failure, actions);
    return actions;
  }
  const auto at = part->walks.find(walk);
  if (at == part->walks.end() || at->second.unanswered.erase(from) == 0) return actions;
  at->second.workers.insert(workers.begin(), workers.end());
  if (at->second.unanswered.empty()) CompleteWalk(pass, *part, walk, actions);
  return actions;
}

template <class Rules>
void BasicPassTable<Rules>::CompleteWalk(const PassKey& pass, Part& part, Asker walk, Actions& actions) {
  const auto at = part.walks.find(walk);
  std::set<WorkerId> workers = std::move(at->second.workers);
  part.walks.erase(at);
  if (walk != kNobody) {
    AnswerTo(walk, nullptr, actions, std::move(workers));
    return;
  }
  workers.erase(self_);
  part.others = std::move(workers);
  part.stage = Stage::kRunning;
  AskOthers(Question::kRun, pass, part, actions);
  actions.push_back(Feed{pass});
}

template <class Rules>
void BasicPassTable<Rules>::AskOthers(Question what, const PassKey& pass, Part& part, Actions& actions) {
  part.awaited = part.others;
  for (const WorkerId& other : part.others) actions.push_back(Ask{what, pass, other, kNobody, false, {}, nullptr});
}

// Running.

template <class Rules>
auto BasicPassTable<Rules>::Arrived(const PassKey& pass, MessageId message) -> Arrival {
  Arrival arrival;
  Part* const part = Find(pass);
  if (!part || part->phase != Phase::kOpen) return arrival;
  const auto at = part->entries.find(message);
  const bool walks =
      std::any_of(part->walks.begin(), part->walks.end(), [](const auto& walk) { return walk.second.walking; });
  if (at == part->entries.end() || at->second != Entry::kMarked || walks) {
    Fail(pass, *part,
         MakeFailure(ErrorCode::kInvalid, "gradients came for a message that takes no part in the backward pass"),
         arrival.actions);
    return arrival;
  }
  at->second = Entry::kRuns;
  ++part->active;
  arrival.runs = true;
  return arrival;
}

template <class Rules>
auto BasicPassTable<Rules>::Ran(const PassKey& pass, MessageId message, const FailurePtr& failure) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  --part->active;
  --part->missing;
  part->entries[message] = Entry::kRan;
  if (failure) Fail(pass, *part, failure, actions);
  if (Part* const still = Find(pass)) Settle(pass, *still, actions);
  return actions;
}

template <class Rules>
bool BasicPassTable<Rules>::Left(const PassKey& pass) {
  Part* const part = Find(pass);
  if (!part || part->phase != Phase::kOpen) return false;
  ++part->unanswered;
  return true;
}

template <class Rules>
auto BasicPassTable<Rules>::GradientsAnswered(const PassKey& pass, const FailurePtr& failure) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part || part->unanswered == 0) return actions;
  --part->unanswered;
  if (failure) Fail(pass, *part, failure, actions);
  return actions;
}

template <class Rules>
bool BasicPassTable<Rules>::TakeAddingUp(const PassKey& pass) {
  Part* const part = Find(pass);
  if (!part || part->phase != Phase::kOpen || part->adding_up || part->active > 0) return false;
  if (part->entries.empty() || part->missing > 0) return false;
  if (part->unanswered > 0 && Rules::kAwaitReceipts) return false;
  part->adding_up = true;
  ++part->active;
  return true;
}

template <class Rules>
auto BasicPassTable<Rules>::AddedUp(const PassKey& pass, const FailurePtr& failure) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  --part->active;
  if (failure) {
    Fail(pass, *part, failure, actions);
  } else if (part->phase == Phase::kOpen) {
    part->phase = Phase::kDone;
    if (part->run_asker != kNobody) AnswerTo(std::exchange(part->run_asker, kNobody), nullptr, actions);
    CommitIfAllAreDone(pass, *part, actions);
    return actions;
  }
  if (Part* const still = Find(pass)) Settle(pass, *still, actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::RunAsked(const PassKey& pass, Asker asker) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (part) part->run_asked = true;
  if (part && part->phase == Phase::kOpen) {
    part->run_asker = asker;
    return actions;
  }
  FailurePtr failure;
  if (!part || part->phase != Phase::kDone) failure = part && part->failure ? part->failure : WhyNotHere(pass);
  AnswerTo(asker, std::move(failure), actions);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::RunAnswered(const PassKey& pass, WorkerId from, const FailurePtr& failure) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part || part->stage != Stage::kRunning) return actions;
  if (failure) {
    Fail(pass, *part, failure, actions);
  } else {
    part->awaited.erase(from);
    CommitIfAllAreDone(pass, *part, actions);
  }
  return actions;
}

// Commit.

template <class Rules>
void BasicPassTable<Rules>::CommitIfAllAreDone(const PassKey& pass, Part& part, Actions& actions) {
  if (part.stage != Stage::kRunning || part.phase != Phase::kDone) return;
  if (!part.awaited.empty() && Rules::kCommitWhenAllAreDone) return;
  part.stage = Stage::kCommitting;
  AskOthers(Question::kCommit, pass, part, actions);
  if (!part.awaited.empty()) return;
  part.phase = Phase::kCommitted;
  actions.push_back(End{pass, nullptr});
}

template <class Rules>
FailurePtr BasicPassTable<Rules>::CommitAsked(const PassKey& pass) {
  Part* const part = Find(pass);
  if (!part) return WhyNotHere(pass);
  if (part->phase != Phase::kDone) {
    return part->failure ? part->failure : MakeFailure(ErrorCode::kInvalid, "the backward pass is not done here");
  }
  part->phase = Phase::kCommitted;
  return nullptr;
}

template <class Rules>
auto BasicPassTable<Rules>::Committed(const PassKey& pass) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part) return actions;
  for (const Asker asker : part->abort_askers) AnswerTo(asker, nullptr, actions);
  actions.push_back(Forget{pass});
  parts_.erase(pass.context);
  return actions;
}

template <class Rules>
auto BasicPassTable<Rules>::CommitAnswered(const PassKey& pass, WorkerId from, const FailurePtr& failure) -> Actions {
  Actions actions;
  Part* const part = Find(pass);
  if (!part || part->stage != Stage::kCommitting || part->phase != Phase::kDone) return actions;
  if (failure) {
    Fail(pass, *part, failure, actions);
  } else if (part->awaited.erase(from) > 0 && part->awaited.empty()) {
    part->phase = Phase::kCommitted;
    actions.push_back(End{pass, nullptr});
  }
  return actions;
}

}  // namespace gradwire::autograd

#include "autograd/pass_table_ends_inl.h"
