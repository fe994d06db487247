// Group: what it does as time passes.
#include <algorithm>
#include <utility>

#include "rpc/group.h"

namespace gradwire::rpc {

// The host is asked before the mutex is taken.
void Group::OnTimer(uint64_t serial) {
  WorkerSet members;
  TimePoint due;
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || table_.ended() || serial != armed_) return;  // an earlier one has been armed meanwhile
    timer_ = 0;
    due = due_;
    members = table_.members();
    for (const auto& [worker, other] : others_) members.insert(worker);
  }
  Heard heard;
  WorkerSet awaited;
  if (const auto host = options_.host.lock()) {
    awaited = host->Awaited();
    members.erase(options_.self);
    awaited.erase(options_.self);
    for (const WorkerId& worker : members | awaited) {
      if (const auto when = host->LastHeard(worker)) heard[worker] = *when;
    }
  }
  Step([&](TimePoint now) {
    const bool late = now - due > limit_ / 2;
    if (now >= next_tick_ || late) {
      next_tick_ = now + tick_period_;
      Tick(now, late, heard, awaited);
    }
    CheckVotes(now);
  });
}

void Group::Tick(TimePoint now, bool late, const Heard& heard, const WorkerSet& awaited) {
  if (late) WakeUp(now);
  for (const auto& [worker, when] : heard) NoteHeard(worker, when);
  const WorkerSet watched = Watched(now, awaited);
  for (auto& [worker, other] : others_) other.watched = other.watched && watched.contains(worker);
  for (const WorkerId& worker : watched) {
    Watch(worker, now);
    Other& other = others_[worker];
    const Duration silence = Silence(other, now);
    if (silence >= limit_) Suspect(worker, now, "");
    // One at a time, but for one that may have come before the other side's group was there.
    const bool unanswered = other.beats_answered != other.beats_sent && now - other.beat_at < limit_ / 4;
    if (!unanswered && silence >= beat_period_) SendBeat(worker);
  }
  // Those that are neither members nor watched are forgotten.
  std::erase_if(others_, [&](const auto& entry) {
    return !entry.second.watched && !entry.second.probing && !table_.members().contains(entry.first);
  });
  CheckRound(now);
  CheckDoubts(now);
  // Calls made since then wait for it as well.
  for (const WorkerId& worker : table_.parted() & awaited) {
    Other& other = others_[worker];
    if (Silence(other, now) < limit_ || now - other.failed < limit_) continue;
    FailPair(worker, now);
  }
}

// This worker's own timer came late: its machine slept, or its thread was starved. What looks like the silence of
// others may be its own.
void Group::WakeUp(TimePoint now) {
  Do(table_.OnSlept());
  for (auto& [worker, other] : others_) {
    other.since = now;
    other.fresh_beat = other.beats_sent + 1;
    if (other.watched) SendBeat(worker);
  }
  for (auto& [from, vote] : votes_) {
    vote.since = now;
    vote.limit = now + vote_limit_;
  }
}

WorkerSet Group::Watched(TimePoint now, const WorkerSet& awaited) const {
  const WorkerSet members = table_.members() - WorkerSet{options_.self};
  WorkerSet watched = awaited - table_.removed();
  if (table_.Acts()) watched |= members;
  if (const auto target = table_.Target()) watched.insert(*target);
  watched |= table_.Pending() | (members & (table_.suspects() | table_.parted()));
  for (const auto& [worker, other] : others_) {
    if (members.contains(worker) && other.beaten != TimePoint() && now - other.beaten < 2 * limit_) {
      watched.insert(worker);
    }
  }
  for (const auto& [from, vote] : votes_) watched |= vote.ask.wanted & members;
  watched.erase(options_.self);
  return watched - table_.gone();
}

void Group::Watch(WorkerId worker, TimePoint now) {
  Other& other = others_[worker];
  if (std::exchange(other.watched, true)) return;
  other.since = now;
}

// `why` empty: it is silent.
void Group::Suspect(WorkerId worker, TimePoint now, std::string why) {
  if (!table_.members().contains(worker)) return EndPair(worker, now, std::move(why));
  if (table_.suspects().contains(worker) || table_.parted().contains(worker) || table_.gone().contains(worker)) return;
  Other& other = others_[worker];
  other.why = std::move(why);
  other.doubted = now;
  Do(table_.OnBroken(worker));
  StartProbe(worker);
}

// With one in no view: this pair decides by itself.
void Group::EndPair(WorkerId worker, TimePoint now, std::string why) {
  if (table_.removed().contains(worker) || table_.members().size() > 1) return;
  Other& other = others_[worker];
  Later([worker, silence = ShownSilence(other, now), why = std::move(why)](GroupHost& host) {
    const std::string name = host.NameOf(worker);
    const std::string text = why.empty() ? "worker '" + name + "' is " + silence : why;
    host.EndSession(worker, 0, {.code = ErrorCode::kDisconnected, .text = text, .worker = name});
  });
  other.since = now;
}

void Group::FailPair(WorkerId worker, TimePoint now) {
  others_[worker].failed = now;
  Later([worker](GroupHost& host) {
    const std::string name = host.NameOf(worker);
    host.FailPair(worker, {.code = ErrorCode::kUnreachable,
                           .text = "worker '" + name + "' cannot be reached from here, though others reach it",
                           .worker = name});
  });
}

void Group::SendBeat(WorkerId worker) {
  Other& other = others_[worker];
  other.beat_at = options_.clock->Now();
  const wire::GroupBeat beat{.epoch = table_.epoch(), .number = ++other.beats_sent};
  Later([worker, bytes = wire::Encode(wire::GroupLetter{beat, {}})](GroupHost& host) mutable {
    host.SendLetter(worker, std::move(bytes));
  });
}

void Group::StartProbe(WorkerId worker) {
  if (std::exchange(others_[worker].probing, true)) return;
  Later([worker, limit = vote_limit_, weak = weak_from_this()](GroupHost& host) {
    host.Probe(worker, limit, [worker, weak](GroupHost::Probed probed) {
      const auto self = weak.lock();
      if (self) self->Step([&](TimePoint) { self->OnProbed(worker, probed); });
    });
  });
}

void Group::OnProbed(WorkerId worker, GroupHost::Probed probed) {
  const auto at = others_.find(worker);
  if (at == others_.end()) return;
  Other& other = at->second;
  other.probing = false;
  const TimePoint now = options_.clock->Now();
  const std::string no_path = std::exchange(other.no_path, {});
  const bool accepted = probed == GroupHost::Probed::kAccepted;
  if (!accepted && !no_path.empty()) Suspect(worker, now, no_path);
  if (!table_.members().contains(worker)) return;
  if (probed == GroupHost::Probed::kRefused) {
    if (other.why.empty()) other.why = "its address refuses connections";
    Do(table_.OnGone(worker));
    for (auto& [from, vote] : votes_) vote.gone.insert(worker);
    return CheckVotes(now);
  }
  if (!accepted && table_.suspects().contains(worker)) Do(table_.OnDark(worker));
  if (!std::exchange(other.probed_for_round, false) || !table_.Pending().contains(worker)) return;
  Do(accepted ? table_.OnStuck(worker) : table_.OnMissed(worker));
}

// Votes once each of those that an Ask is about has given a sign of life since, is gone, or has had its time.
void Group::CheckVotes(TimePoint now) {
  for (auto at = votes_.begin(); at != votes_.end();) {
    const WorkerId from = at->first;
    const Vote& vote = at->second;
    WorkerSet reached;
    bool open = false;
    for (const WorkerId& worker : vote.ask.wanted) {
      if (worker == options_.self) continue;
      if (worker == from || others_[worker].heard > vote.since) {
        reached.insert(worker);
      } else {
        open = open || !vote.gone.contains(worker);
      }
    }
    if (open && now < vote.limit) {
      ++at;
      continue;
    }
    const Vote ready = std::move(at->second);
    at = votes_.erase(at);
    Do(table_.OnMessage(from, ready.ask, reached, ready.gone - reached));
  }
}

// The limit of the round has passed for those who were silent for long as well: its machine is asked first, so that who
// is frozen is told from who is cut off.
void Group::CheckRound(TimePoint now) {
  if (!table_.round() || now - round_began_ < round_limit_) return;
  for (const WorkerId& worker : table_.Pending()) {
    Other& other = others_[worker];
    if (!table_.suspects().contains(worker) && Silence(other, now) < limit_) continue;
    if (std::exchange(other.probed_for_round, true)) continue;
    StartProbe(worker);
  }
}

void Group::CheckDoubts(TimePoint now) {
  for (const WorkerId& worker : table_.suspects() | table_.reported()) {
    // Reported long ago, and no view without it has come.
    if (table_.round() || now - others_[worker].doubted < 3 * limit_) continue;
    others_[worker].doubted = now;
    Do(table_.OnSettled(worker));
  }
  if (!table_.StandsAlone()) return;
  for (const WorkerId& worker : table_.parted()) {
    Other& other = others_[worker];
    if (now - other.doubted < limit_ || Silence(other, now) < limit_) continue;
    other.doubted = now;
    Do(table_.OnRecheck(worker));
  }
}

}  // namespace gradwire::rpc
