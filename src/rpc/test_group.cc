#include "rpc/test_group.h"

#include <algorithm>

namespace gradwire::rpc {
namespace {

constexpr std::chrono::milliseconds kDelay{1};

}  // namespace

GroupNetwork::GroupNetwork(int workers, std::chrono::milliseconds limit, Partition partition, bool open)
    : log_(SetLogSink([](LogLevel, std::string_view) {})) {
  // The clock of one worker: its timers wait while it is frozen.
  struct OwnClock final : Clock {
    OwnClock(GroupNetwork& network, int worker) : network(network), worker(worker) {}
    TimePoint Now() const override { return network.now_; }
    TimerId CallAt(TimePoint when, Task task) override {
      network.At(when, worker, std::move(task));
      return network.last_;
    }
    void Cancel(TimerId id) override {
      std::erase_if(network.timers_, [&](const auto& timer) { return timer.second.number == id; });
    }
    GroupNetwork& network;
    int worker;
  };
  WorkerSet members;
  for (int i = 0; i < workers; ++i) members.insert(Id(i));
  for (int i = 0; i < workers; ++i) machines_.push_back(std::make_shared<Machine>(*this, i));
  for (int i = 0; i < workers; ++i) {
    Machine& machine = (*this)[i];
    machine.group = std::make_shared<Group>(Group::Options{.self = Id(i),
                                                           .members = open ? WorkerSet{Id(i)} : members,
                                                           .partition = partition,
                                                           .heartbeat_limit = limit,
                                                           .clock = std::make_shared<OwnClock>(*this, i),
                                                           .host = machine.weak_from_this()});
    machine.group->Start();
  }
}

GroupNetwork::~GroupNetwork() {
  for (const auto& machine : machines_) machine->group->Stop();
  SetLogSink(std::move(log_));
}

WorkerSet GroupNetwork::Ids(std::initializer_list<int> workers) {
  WorkerSet ids;
  for (int worker : workers) ids.insert(Id(worker));
  return ids;
}

void GroupNetwork::At(TimePoint when, int worker, Task task) {
  const uint64_t number = ++last_;
  timers_.emplace(std::pair(when, number), Timer{when, number, worker, std::move(task)});
}

void GroupNetwork::Pass(Duration duration) {
  const TimePoint end = now_ + duration;
  while (!timers_.empty() && timers_.begin()->first.first <= end) {
    Timer timer = std::move(timers_.extract(timers_.begin()).mapped());
    now_ = std::max(now_, timer.when);
    Machine& machine = (*this)[timer.worker];
    if (machine.life_ == Machine::Life::kUp) {
      timer.task();
    } else if (machine.life_ == Machine::Life::kFrozen) {
      machine.held_.push_back(std::move(timer.task));
    }
  }
  now_ = end;
}

void GroupNetwork::Kill(int worker) {
  (*this)[worker].life_ = Machine::Life::kDead;
  for (const auto& machine : machines_) {
    if (machine->worker_ == worker || IsCut(machine->worker_, worker)) continue;
    At(now_ + kDelay, machine->worker_, [machine, worker] {
      machine->group->OnSessionEnded(Id(worker), {SessionEnd::How::kGone},
                                     {.code = ErrorCode::kDisconnected, .text = "nobody listens there"});
    });
  }
}

void GroupNetwork::Freeze(int worker) { (*this)[worker].life_ = Machine::Life::kFrozen; }

void GroupNetwork::Thaw(int worker) {
  Machine& machine = (*this)[worker];
  machine.life_ = Machine::Life::kUp;
  for (Task& task : std::exchange(machine.held_, {})) At(now_, worker, std::move(task));
}

void GroupNetwork::Cut(int a, int b) { cuts_[{std::min(a, b), std::max(a, b)}] = true; }
void GroupNetwork::Mend() { cuts_.clear(); }

void GroupNetwork::Machine::SendLetter(WorkerId to, std::string bytes) {
  ++letters;
  const int other = static_cast<int>(to.rank);
  if (refused_.contains(other)) return;
  network_.At(network_.now_ + kDelay, other, [this, other, bytes = std::move(bytes)] {
    network_[other].Arrive(worker_, bytes);
  });
}

// A letter over a cut line is sent again until it arrives; what comes of one that is removed is answered by a refusal.
void GroupNetwork::Machine::Arrive(int from, const std::string& bytes) {
  if (network_.IsCut(from, worker_)) {
    return network_.At(network_.now_ + std::chrono::milliseconds(50), worker_,
                       [this, from, bytes] { Arrive(from, bytes); });
  }
  if (const auto refused = refused_.find(from); refused != refused_.end()) {
    const auto [epoch, why] = refused->second;
    if (epoch == 0) return;
    return network_.At(network_.now_ + kDelay, from, [this, from, epoch = epoch, why = why] {
      network_[from].group->OnSessionEnded(Id(worker_), {SessionEnd::How::kRemoved, epoch},
                                           {.code = ErrorCode::kDisconnected, .text = why});
    });
  }
  heard_[Id(from)] = network_.now_;
  group->OnLetter(Id(from), bytes);
}

std::optional<TimePoint> GroupNetwork::Machine::LastHeard(WorkerId worker) {
  const auto at = heard_.find(worker);
  if (at == heard_.end()) return std::nullopt;
  return at->second;
}

void GroupNetwork::Machine::Probe(WorkerId worker, Duration limit, UniqueFunction<void(Probed)> done) {
  const int other = static_cast<int>(worker.rank);
  Probed probed = Probed::kAccepted;
  if (network_[other].life_ == Life::kDead) probed = Probed::kRefused;
  if (network_.IsCut(worker_, other)) probed = Probed::kNoAnswer;
  const Duration delay = probed == Probed::kNoAnswer ? limit : Duration(kDelay);
  network_.At(network_.now_ + delay, worker_, [done = std::move(done), probed]() mutable { done(probed); });
}

void GroupNetwork::Machine::EndSession(WorkerId worker, uint64_t epoch, const Failure& why) {
  ended[worker] = why.text;
  refused_[static_cast<int>(worker.rank)] = {epoch, why.text};
}

void GroupNetwork::Machine::OnFenced(const Failure& why) {
  fenced = why.text;
  for (const auto& machine : network_.machines_) {
    if (machine->worker_ == worker_) continue;
    refused_[machine->worker_] = {0, why.text};
    network_.At(network_.now_ + kDelay, machine->worker_, [machine, self = worker_] {
      machine->group->OnSessionEnded(Id(self), {SessionEnd::How::kGone},
                                     {.code = ErrorCode::kDisconnected, .text = "it has ended"});
    });
  }
}

}  // namespace gradwire::rpc
