#include "sim/job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>

#include "worker/parts.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Nobody is lost by a freeze or a partition of this length. A machine that accepts no connection is given up much
// sooner than one that does, whose process may only be slow.
constexpr milliseconds kShortFreeze{2000}, kShortPartition{200};
constexpr seconds kLong{90};  // everybody who cannot be heard for so long is lost
constexpr seconds kEnough{900};

transport::InprocNetwork::Options Timed(const std::shared_ptr<SimScheduler>& scheduler, uint64_t seed) {
  return {.clock = scheduler,
          .least = std::chrono::microseconds(20),
          .most = std::chrono::microseconds(900),
          .seed = seed};
}

}  // namespace

Job::Job(JobOptions options)
    : options_(std::move(options)),
      scheduler_(std::make_shared<SimScheduler>(options_.seed)),
      network_(Timed(scheduler_, options_.seed)),
      random_(options_.seed * 7919 + 1) {
  for (size_t rank = 0; rank < options_.workers; ++rank) {
    auto part = std::make_unique<Part>();
    part->node = std::make_shared<SimNode>(scheduler_);
    part->transport = std::make_shared<transport::InprocTransport>(network_, part->node);
    part->random.seed(options_.seed * 31 + rank);
    part->parameter = at::full({4}, 0.5 + 0.1 * static_cast<double>(rank), at::kDouble).set_requires_grad(true);
    part->numbers.resize(options_.workers);
    parts_.push_back(std::move(part));
  }
  const int operations = options_.calls / 7 + options_.references + options_.passes;  // at least
  for (const JobFault fault : options_.faults) {
    faults_.emplace(static_cast<int>(random_() % static_cast<uint64_t>(operations)), fault);
  }
}

Job::~Job() {
  for (auto& part : parts_) {
    if (part->node->is_frozen()) part->node->Thaw();
  }
  for (auto& part : parts_) part->worker.reset();
  for (auto& part : parts_) part->transport->Stop();
  scheduler_->RunReady();
  for (auto& part : parts_) part->node->DropTimers();
  scheduler_->DropTimers();
}

void Job::Violated(const std::string& guarantee, const std::string& what) {
  report_.violations.push_back(guarantee + ": " + what + " (seed " + std::to_string(options_.seed) + ")");
}

void Job::Check(const std::string& guarantee, bool holds, const std::string& what) {
  ++report_.checks[guarantee];
  if (!holds) Violated(guarantee, what);
}

// A fault that lasts explains the failure of what one of its victims takes part in. When so many are lost that the rest
// is no majority, it explains any.
bool Job::MayFail(size_t rank, const std::vector<size_t>& others) const {
  const auto suffers = [this](size_t one) { return parts_[one]->suffers; };
  size_t lost = 0;
  for (size_t one = 0; one < parts_.size(); ++one) lost += suffers(one);
  return lost * 2 >= parts_.size() || suffers(rank) || std::any_of(others.begin(), others.end(), suffers);
}

void Job::Start(size_t rank) {
  Part& part = (*this)[rank];
  const auto parts = std::make_shared<WorkerParts>();
  parts->clock = part.node;
  parts->executor = part.node;
  parts->transports = {part.transport};
  parts->incarnation = static_cast<uint32_t>(100 + rank);
  WorkerOptions options{.name = "worker" + std::to_string(rank),
                        .rank = static_cast<int>(rank),
                        .world_size = static_cast<int>(parts_.size())};
  options.store = std::make_shared<SimStore>(store_, part.node);
  options.rpc_timeout = milliseconds(0);  // what ends has another reason
  options.functions = std::make_shared<Functions>();
  AddFunctions(rank, *options.functions);
  part.worker = std::make_unique<Worker>(options, parts);
  part.started.Set();
}

void Job::Progress() {
  const auto [begin, end] = faults_.equal_range(operations_++);
  for (auto at = begin; at != end; ++at) {
    const Duration in = std::chrono::microseconds(random_() % 3000);
    scheduler_->CallAt(scheduler_->Now() + in, [this, fault = at->second] { Inject(fault); });
  }
}

void Job::Inject(JobFault fault) {
  const size_t victim = random_() % parts_.size();
  Part& part = (*this)[victim];
  if (part.dead || std::all_of(parts_.begin(), parts_.end(), [](const auto& each) { return each->over; })) return;
  const std::string address = part.transport->address();
  if (options_.shows) {
    constexpr const char* kNames[] = {"cut", "lost suffix", "freeze", "death", "partition"};
    std::cout << "worker" << victim << ": " << kNames[static_cast<int>(fault)] << std::endl;
  }
  const bool lasts = options_.may_last && random_() % 2 == 0;
  const auto after = [&](milliseconds otherwise, Task end) {
    scheduler_->CallAt(scheduler_->Now() + (lasts ? milliseconds(kLong) : otherwise), std::move(end));
  };
  const auto some = [this](size_t waiting) { return random_() % (waiting + 1); };
  switch (fault) {
    case JobFault::kCut: return network_.Cut(address, [](size_t waiting) { return waiting; });
    case JobFault::kLostSuffix: return network_.Cut(address, some);
    case JobFault::kFreeze:
      part.suffers |= lasts;
      part.node->Freeze();
      return after(kShortFreeze, [this, victim] {
        if (!(*this)[victim].dead) (*this)[victim].node->Thaw();
      });
    case JobFault::kDeath:
      part.suffers = part.dead = true;
      part.node->Freeze();
      network_.Kill(address, some);
      return ThawTheLast();
    case JobFault::kPartition:
      part.suffers |= lasts;
      std::vector<std::string> others;
      for (size_t rank = 0; rank < parts_.size(); ++rank) {
        if (rank != victim) others.push_back((*this)[rank].transport->address());
      }
      network_.Part({address}, others);
      return after(kShortPartition, [this] { network_.Heal(); });
  }
}

// The dead go on when nobody else is there any more: whatever they wait for ends, too.
void Job::ThawTheLast() {
  const auto is_over_or_dead = [](const auto& part) { return part->over || part->dead; };
  if (!std::all_of(parts_.begin(), parts_.end(), is_over_or_dead)) return;
  for (auto& part : parts_) {
    if (part->dead && part->node->is_frozen()) part->node->Thaw();
  }
}

JobReport Job::Run() {
  at::set_num_threads(1);
  Event all_over;
  const auto end_of_one = [&](size_t rank) {
    (*this)[rank].over = true;
    const auto is_over = [](const auto& part) { return part->over; };
    if (std::all_of(parts_.begin(), parts_.end(), is_over)) return all_over.Set();
    ThawTheLast();
  };
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    scheduler_->Spawn([this, rank, end_of_one] {
      RunProgram(rank);
      end_of_one(rank);
    });
  }
  try {
    Check("C1", scheduler_->Await(all_over, kEnough), "a wait has not ended");
  } catch (const Error& error) {
    Violated("C1", error.what());
  }
  report_.steps = scheduler_->steps();
  return report_;
}

}  // namespace gradwire::sim
