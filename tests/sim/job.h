// Job: whole workers in one thread, over a simulated network with faults, that run a random program. One seed, one run.
// What the guarantees that job_test.cc lists promise of it is checked while it goes on and when it is over.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/worker.h"
#include "sim/sim_scheduler.h"
#include "sim/sim_store.h"
#include "transport/inproc/inproc_transport.h"

namespace gradwire::sim {

enum class JobFault { kCut, kLostSuffix, kFreeze, kDeath, kPartition };

struct JobOptions {
  uint64_t seed = 0;
  size_t workers = 3;
  int calls = 200, references = 50, passes = 3;  // in all
  std::vector<JobFault> faults;                  // each at a moment of its own
  bool shows = false;                            // writes what breaks
  bool may_last = true;                          // a freeze or a partition longer than others put up with
};

struct JobReport {
  std::map<std::string, uint64_t> checks;  // by guarantee: how often it was looked at
  std::vector<std::string> violations;
  uint64_t steps = 0;
  uint64_t ends_by_error = 0;  // of calls
};

class Job {
 public:
  explicit Job(JobOptions options);
  ~Job();
  JobReport Run();

 private:
  struct Part {  // of one worker
    std::shared_ptr<SimNode> node;
    std::shared_ptr<transport::InprocTransport> transport;
    std::unique_ptr<Worker> worker;
    Event started;  // what others call may come before the constructor returns
    std::mt19937_64 random;
    at::Tensor parameter;
    std::deque<RRef<int64_t>> kept;
    std::vector<int64_t> numbers;  // by caller: the last that an ordered call has brought
    bool suffers = false;          // its calls may fail: a fault has made it lost, or may have
    bool dead = false;
    bool over = false;             // its program
  };

  // job.cc
  void Start(size_t rank);
  void RunProgram(size_t rank);
  void Progress();  // an operation of a program begins
  void Inject(JobFault fault);
  void ThawTheLast();
  void Violated(const std::string& guarantee, const std::string& what);
  void Check(const std::string& guarantee, bool holds, const std::string& what);
  bool MayFail(size_t rank, const std::vector<size_t>& others) const;
  Part& operator[](size_t rank) { return *parts_[rank]; }
  Worker& StartedWorker(Part& part);

  // job_program.cc
  void AddFunctions(size_t rank, Functions& functions);
  void CallMany(size_t rank, int calls);
  void ShareOne(size_t rank);
  int64_t Use(size_t rank, const RRef<int64_t>& ref, int64_t value, size_t maker, int64_t hops);
  static void Keep(Part& part, const RRef<int64_t>& ref);
  void Train(size_t rank);
  size_t Another(size_t rank);
  void ExpectNothingLeft(size_t rank);
  void Failed(size_t rank, const std::vector<size_t>& others, const Error& error, const std::string& doing);

  const JobOptions options_;
  std::shared_ptr<SimScheduler> scheduler_;
  transport::InprocNetwork network_;
  std::shared_ptr<SimStore::Shared> store_ = std::make_shared<SimStore::Shared>();
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::map<int64_t, int> runs_;  // of each call, by the number that it carries
  int64_t last_number_ = 0;
  int operations_ = 0;
  std::multimap<int, JobFault> faults_;  // by the operation that they come with
  JobReport report_;
};

}  // namespace gradwire::sim
