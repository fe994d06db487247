// A few Groups in one thread, on a clock and a network of the test: letters take a millisecond; workers freeze, thaw
// and die; lines are cut.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "rpc/group.h"

namespace gradwire::rpc {

class GroupNetwork {
 public:
  class Machine;

  GroupNetwork(int workers, std::chrono::milliseconds limit, Partition partition = Partition::kMajority,
               bool open = false);
  ~GroupNetwork();

  void Pass(Duration duration);  // lets time pass
  Machine& operator[](int worker) { return *machines_[static_cast<size_t>(worker)]; }

  void Kill(int worker);    // its sessions end, its address refuses
  void Freeze(int worker);  // it answers nothing, its machine accepts connections
  void Thaw(int worker);
  void Cut(int a, int b);  // the pair has no network
  void Mend();

  static WorkerId Id(int worker) { return {static_cast<uint32_t>(worker), 1}; }
  static WorkerSet Ids(std::initializer_list<int> workers);

 private:
  friend class Machine;
  struct Timer {
    TimePoint when;
    uint64_t number;
    int worker;  // whose it is: it waits while that one is frozen
    Task task;
  };

  void At(TimePoint when, int worker, Task task);
  bool IsCut(int a, int b) const { return cuts_.contains({std::min(a, b), std::max(a, b)}); }

  LogSink log_;  // of the program; what is lost here on purpose is no news
  std::vector<std::shared_ptr<Machine>> machines_;
  std::map<std::pair<TimePoint, uint64_t>, Timer> timers_;
  std::map<std::pair<int, int>, bool> cuts_;
  TimePoint now_{std::chrono::hours(1)};
  uint64_t last_ = 0;
};

// A worker: its group, and what its group asks of it.
class GroupNetwork::Machine final : public GroupHost, public std::enable_shared_from_this<Machine> {
 public:
  Machine(GroupNetwork& network, int worker) : network_(network), worker_(worker) {}

  std::shared_ptr<Group> group;
  WorkerSet awaited;                        // by calls
  std::map<WorkerId, std::string> ended;    // sessions that the group has ended, and why
  std::map<WorkerId, std::string> failed;   // pairs, until they are whole again
  std::string fenced;                       // why
  size_t letters = 0;                       // sent

  void SendLetter(WorkerId to, std::string bytes) override;
  std::optional<TimePoint> LastHeard(WorkerId worker) override;
  WorkerSet Awaited() override { return awaited; }
  void Probe(WorkerId worker, Duration limit, UniqueFunction<void(Probed)> done) override;
  void EndSession(WorkerId worker, uint64_t epoch, const Failure& why) override;
  void FailPair(WorkerId worker, const Failure& why) override { failed[worker] = why.text; }
  void OnReached(WorkerId worker) override { failed.erase(worker); }
  void OnView(uint64_t, const WorkerSet&) override {}
  void OnFenced(const Failure& why) override;
  std::string NameOf(WorkerId worker) const override { return "w" + std::to_string(worker.rank); }

 private:
  friend class GroupNetwork;
  enum class Life { kUp, kFrozen, kDead };

  void Arrive(int from, const std::string& bytes);

  GroupNetwork& network_;
  const int worker_;
  Life life_ = Life::kUp;
  std::vector<Task> held_;                      // while it is frozen
  std::map<WorkerId, TimePoint> heard_;
  std::map<int, std::pair<uint64_t, std::string>> refused_;  // whom it has removed: in which epoch, and why
};

}  // namespace gradwire::rpc
