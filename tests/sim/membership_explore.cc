#include "membership_explore.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "membership_steps.h"
#include "membership_world.h"

namespace gradwire::sim {
namespace {

// 128 bits of a state: two hashes of its bytes.
using StateHash = std::pair<uint64_t, uint64_t>;

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

StateHash HashOf(const WorldState& state) {
  static_assert(std::is_trivially_copyable_v<WorldState>);
  const char* bytes = reinterpret_cast<const char*>(&state);
  StateHash hash{0x9E3779B97F4A7C15ull, 0x243F6A8885A308D3ull};
  for (size_t at = 0; at < sizeof state; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, sizeof state - at));
    hash.first = Mix(hash.first ^ word);
    hash.second = Mix(hash.second + word * 0xD6E8FEB86659FD93ull);
  }
  return hash;
}

struct FirstOfHash {
  size_t operator()(const StateHash& hash) const { return hash.first; }
};

// Depth first, so that the path is the trace of what broke.
class MembershipExplorer {
 public:
  MembershipExplorer(const MembershipScenario& scenario, MembershipMistake mistake) : things_(scenario, mistake) {}

  MembershipReport Run(size_t limit) {
    MembershipReport report;
    try {
      report.complete = Visit(limit);
    } catch (const BrokenGuarantee& broken) {
      report.broken = broken.what();
      for (const Frame& frame : path_) {
        if (frame.next > 0) report.steps.push_back(ToString(frame.steps[frame.next - 1]));
      }
    }
    report.states = seen_.size();
    return report;
  }

 private:
  struct Frame {
    WorldState state;
    std::vector<WorldStep> steps;
    size_t next = 0;
  };

  void Enter(World& world) {
    std::vector<WorldStep> steps = NextSteps(world);
    const bool rests =
        std::all_of(steps.begin(), steps.end(), [](const WorldStep& s) { return s.urgency == Urgency::kMay; });
    path_.push_back({world.s, std::move(steps)});
    if (rests) world.CheckRest();
  }

  bool Visit(size_t limit) {
    World first(things_);
    seen_.insert(HashOf(first.s));
    Enter(first);
    while (!path_.empty()) {
      Frame& frame = path_.back();
      if (frame.next == frame.steps.size()) {
        path_.pop_back();
        continue;
      }
      World world(things_, frame.state);
      Take(world, frame.steps[frame.next++]);
      if (!seen_.insert(HashOf(world.s)).second) continue;
      if (seen_.size() > limit) return false;
      Enter(world);
    }
    return true;
  }

  WorldThings things_;
  std::unordered_set<StateHash, FirstOfHash> seen_;
  std::vector<Frame> path_;
};

}  // namespace

MembershipReport Explore(const MembershipScenario& scenario, MembershipMistake mistake, size_t limit) {
  return MembershipExplorer(scenario, mistake).Run(limit);
}

}  // namespace gradwire::sim
