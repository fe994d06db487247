// Group: watches the other workers, and agrees with them on who is lost (M1, docs/membership.md). It drives Membership,
// which knows no time, by beats and limits.
//
// Who is watched gets a beat after a second without a frame of it, and answers at once. Watched are: the coordinator by
// all, all by the coordinator, whoever beats this worker, whom a round waits for, and whom a call waits for.
//
// Of workers that are in no view (those of an open group) this pair alone decides: silence ends their session.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/worker_set.h"
#include "gradwire/error.h"
#include "gradwire/unique_function.h"
#include "rpc/membership.h"
#include "rpc/session_end.h"
#include "wire/group.h"

namespace gradwire::rpc {

// What a Group needs. No lock is held during these calls; none may wait, and they may run under a role.
class GroupHost {
 public:
  // What the machine of a worker says to an attempt to connect.
  enum class Probed : uint8_t { kAccepted, kRefused, kNoAnswer };

  virtual ~GroupHost() = default;

  // Sends the bytes to OnLetter() of the worker's group: once and in order, or never when the session ends.
  virtual void SendLetter(WorkerId to, std::string bytes) = 0;
  // When a frame of the worker came last; nothing when none has, ever.
  virtual std::optional<TimePoint> LastHeard(WorkerId worker) = 0;
  // For whom this worker waits: with calls, above all.
  virtual WorkerSet Awaited() = 0;
  // Calls back once, on any thread, after `limit` at the latest.
  virtual void Probe(WorkerId worker, Duration limit, UniqueFunction<void(Probed)> done) = 0;

  // The view of `epoch` is without this worker: its session ends, and it is told. 0: there is no view; the pair ends.
  virtual void EndSession(WorkerId worker, uint64_t epoch, const Failure& why) = 0;
  // The worker lives, but not for this one: what waits for it fails. The session stays.
  virtual void FailPair(WorkerId worker, const Failure& why) = 0;
  virtual void OnReached(WorkerId worker) = 0;  // this one reaches it again
  virtual void OnView(uint64_t epoch, const WorkerSet& members) = 0;
  // This worker is lost, or cut off: nothing goes on here.
  virtual void OnFenced(const Failure& why) = 0;

  virtual std::string NameOf(WorkerId worker) const = 0;
};

class Group final : public std::enable_shared_from_this<Group> {
 public:
  struct Options {
    WorkerId self;
    WorkerSet members;  // of a fixed group, with this worker; itself alone in an open one
    Partition partition = Partition::kMajority;
    std::chrono::milliseconds heartbeat_limit{10'000};  // silence beyond it is a suspicion
    std::shared_ptr<Clock> clock;
    std::weak_ptr<GroupHost> host;
  };
  explicit Group(Options options);

  void Start();  // watching. Once.
  // This worker ends: nothing is watched any more, and nobody is told.
  void Stop();

  // What the sessions say. Any thread, roles included. Throws Error(kInvalid) for bytes that no worker sends.
  void OnLetter(WorkerId from, std::string_view bytes);
  void OnNoPath(WorkerId worker, const Failure& why);  // beyond the grace time
  void OnSessionEnded(WorkerId worker, SessionEnd end, const Failure& why);

  uint64_t epoch() const;
  WorkerSet members() const;

 private:
  // One other worker.
  struct Other {
    bool watched = false;
    TimePoint since{};        // its silence counts from here, or from the last frame
    TimePoint heard{};        // the last frame
    uint64_t beats_sent = 0;  // each has a number, from 1
    uint64_t beats_answered = 0;
    uint64_t fresh_beat = 0;  // answers from this one on were given after this worker has slept
    TimePoint beat_at{};      // the last one
    TimePoint beaten{};       // its own last beat came
    TimePoint failed{};       // calls to it were failed last
    TimePoint doubted{};      // since when it is suspected, reported or parted
    std::string why;          // it is suspected; empty: it is silent
    std::string no_path;      // why, until it is known whether its machine accepts a connection
    bool probing = false;
    bool probed_for_round = false;
  };
  // An Ask that waits until this worker knows whom it reaches.
  struct Vote {
    wire::GroupAsk ask;
    TimePoint limit{};
    TimePoint since{};
    WorkerSet gone;
  };
  using Heard = std::map<WorkerId, TimePoint>;

  // The mutex is a leaf: what follows from a step is done after unlock, by one thread at a time, in the order of steps.
  template <class F>
  void Step(F step) {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      const TimePoint now = options_.clock->Now();
      step(now);
      Advance(now);
      if (carrying_out_) return;
      carrying_out_ = true;
    }
    CarryOut();
  }
  void CarryOut();
  void Later(UniqueFunction<void(GroupHost&)> task) { todo_.push_back(std::move(task)); }

  // With the mutex held.
  void Do(Membership::Actions actions);
  void OnOwnEnd(Membership::Standing why);
  void Advance(TimePoint now);
  void Tick(TimePoint now, bool late, const Heard& heard, const WorkerSet& awaited);
  void WakeUp(TimePoint now);
  WorkerSet Watched(TimePoint now, const WorkerSet& awaited) const;
  void Watch(WorkerId worker, TimePoint now);
  void NoteHeard(WorkerId worker, TimePoint when);
  void Suspect(WorkerId worker, TimePoint now, std::string why);
  void EndPair(WorkerId worker, TimePoint now, std::string why);
  void SendBeat(WorkerId worker);
  void FailPair(WorkerId worker, TimePoint now);
  void OnBeat(WorkerId from, const wire::GroupBeat& beat, TimePoint now);
  void OnGroupMessage(WorkerId from, const wire::GroupMessage& message, TimePoint now);
  void TellView(WorkerId to);
  void Send(WorkerId to, const wire::GroupMessage& message);
  void StartProbe(WorkerId worker);
  void OnProbed(WorkerId worker, GroupHost::Probed probed);
  void CheckVotes(TimePoint now);
  void CheckRound(TimePoint now);
  void CheckDoubts(TimePoint now);
  bool IsBlocked(TimePoint now) const;
  Duration Silence(const Other& other, TimePoint now) const { return now - std::max(other.since, other.heard); }
  std::string ShownSilence(const Other& other, TimePoint now) const;
  Failure LossOf(WorkerId worker) const;
  void Arm(TimePoint when);
  void OnTimer(uint64_t serial);

  const Options options_;
  const Duration limit_, beat_period_, tick_period_, round_limit_, vote_limit_;

  mutable std::mutex mutex_;  // guards:
  Membership table_;
  bool started_ = false, stopped_ = false;
  std::map<WorkerId, Other> others_;
  std::map<WorkerId, Vote> votes_;
  std::map<WorkerId, std::string> reasons_;  // why workers were declared lost
  WorkerSet parted_;                         // as last told to the host
  uint64_t viewed_ = 1;                      // the epoch that was last told to the host
  wire::GroupAsk asked_;                     // the last one
  wire::Ballot promised_;
  TimePoint promised_at_{};
  wire::Ballot round_;
  bool proposing_ = false;
  TimePoint round_began_{};
  size_t reached_ = 1;  // of the last cut
  std::string own_end_;      // as another side has told it
  uint64_t told_epoch_ = 1;  // the highest that a message was about
  TimerId timer_ = 0;
  uint64_t armed_ = 0;  // which timer that is
  TimePoint due_{}, next_tick_{};
  std::deque<UniqueFunction<void(GroupHost&)>> todo_;
  bool carrying_out_ = false;  // some thread does
};

}  // namespace gradwire::rpc
