// R3: workers that create, share, use and drop references at random, and of whom one or two die, soon after a share.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <algorithm>
#include <random>

#include "rref/messages.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

constexpr int kDeathSeeds = 400;
constexpr size_t kGroupSize = 4;
using NumberRef = RRef<at::Tensor>;

class RRefDeath : public testing::TestWithParam<int> {
 protected:
  struct Held {
    NumberRef ref;
    int64_t number;  // what it must refer to
    size_t creator;
  };

  RRefDeath() : random_(static_cast<uint64_t>(GetParam())), cluster_(static_cast<uint64_t>(GetParam()), kGroupSize) {
    for (size_t rank = 0; rank < kGroupSize; ++rank) {
      Functions& functions = *cluster_[rank].functions;
      functions.Add("make", [](int64_t number) { return at::full({1}, number); });
      functions.Add("hold", [this, rank](NumberRef ref, int64_t number, int64_t creator) {
        held_[rank].push_back({std::move(ref), number, static_cast<size_t>(creator)});
        return true;
      });
    }
    // Who is lost is known to all: here since all have sessions with each other.
    for (size_t one = 0; one < kGroupSize; ++one) {
      for (size_t other = 0; other < one; ++other) {
        cluster_.rpc(one).Notify(cluster_.id(other), rref::kProbeFunction, {});
      }
    }
    RunReady();
  }

  size_t Random(size_t below) { return random_() % below; }
  bool IsDead(size_t rank) const { return dead_[rank]; }

  // Runs `action` after so many steps of the simulation.
  void After(size_t steps, Task action) {
    cluster_.scheduler().Post([this, steps, action = std::move(action)]() mutable {
      steps == 0 ? action() : After(steps - 1, std::move(action));
    });
  }

  // Of what is on its way from it, to it and in its sessions, any part is lost.
  void Kill(size_t rank) {
    if (std::exchange(dead_[rank], true)) return;
    cluster_.network().Kill(cluster_[rank].address, [this](size_t waiting) { return Random(waiting + 1); });
    cluster_.rpc(rank).Stop("it was killed");
    held_[rank].clear();
  }
  // Until nothing moves: connections that break are made again, or found to be gone, within a second.
  void RunReady() { cluster_.scheduler().Advance(std::chrono::seconds(1)); }

  // One of the things that the program on a worker does.
  void Act(size_t rank) {
    if (IsDead(rank)) return;
    auto& mine = held_[rank];
    const size_t what = Random(4);
    try {
      if (what == 0 || mine.empty()) {
        const auto number = static_cast<int64_t>(++last_number_);
        mine.push_back({NumberRef(cluster_.Remote(rank, Random(kGroupSize), "make", EncodeValue(std::tuple(number)))),
                        number, rank});
        return;
      }
      const size_t which = Random(mine.size());
      if (what == 1) {
        const Held given = mine[which];
        if (Random(2) == 0) mine.erase(mine.begin() + static_cast<ptrdiff_t>(which));  // shared and dropped at once
        Share(rank, Random(kGroupSize), given);
        if (deaths_left_ > 0 && Random(8) == 0) {  // with what it has sent still on its way
          --deaths_left_;
          After(Random(4), [this, rank] { Kill(rank); });
        }
      } else if (what == 2) {
        mine.erase(mine.begin() + static_cast<ptrdiff_t>(which));
      } else {
        Use(rank, mine[which]);
      }
    } catch (const Error& error) {  // before the send step: its creation is known to have failed
      EXPECT_TRUE(error.code() == ErrorCode::kDisconnected || error.code() == ErrorCode::kUnreachable) << error.what();
    }
  }

  void Share(size_t rank, size_t with, const Held& held) {
    rpc::Call call;
    call.to = cluster_.id(with);
    call.function = "hold";
    call.args = EncodeValue(std::tuple(held.ref, held.number, static_cast<int64_t>(held.creator)));
    cluster_.rpc(rank).Send(std::move(call), [](Outcome) {});
  }

  // R1: a value whose owner lives is there. The exception is one whose creating call died with its creator.
  void Use(size_t rank, const Held& held) {
    ++uses_;
    held.ref.handle()->Fetch({}, [this, rank, held](Outcome outcome) {
      if (IsDead(rank)) return;
      if (outcome.ok()) {
        EXPECT_EQ(DecodeValue<at::Tensor>(outcome.value()).item<int64_t>(), held.number);
        return;
      }
      const size_t owner = static_cast<size_t>(held.ref.owner().id);
      const bool never_made = outcome.failure().text.find("never made") != std::string::npos;
      EXPECT_TRUE(IsDead(owner) || (never_made && IsDead(held.creator)))
          << "seed " << GetParam() << ", rank " << rank << ", owner " << owner << ": " << outcome.failure().text;
    });
  }

  void RunWith(size_t deaths) {
    deaths_left_ = deaths;
    for (size_t i = 0; i < 120; ++i) After(Random(150), [this] { Act(Random(kGroupSize)); });
    RunReady();
    size_t kept = 0;
    for (size_t rank = 0; rank < kGroupSize; ++rank) {
      for (const Held& held : std::vector<Held>(held_[rank])) {
        ++kept;
        try {
          Use(rank, held);
        } catch (const Error&) {  // its creating call has failed, and says so
        }
      }
    }
    RunReady();
    EXPECT_GT(uses_, kept) << "nothing was used on the way";
    for (auto& mine : held_) mine.clear();
    RunReady();
    for (size_t rank = 0; rank < kGroupSize; ++rank) {
      if (IsDead(rank)) continue;
      const auto counts = cluster_[rank].references->counts();
      for (const std::string& leak : cluster_[rank].references->Leaks()) ADD_FAILURE() << leak;
      EXPECT_EQ(counts.entries, 0u) << "R2: rank " << rank << ", seed " << GetParam() << ": forks " << counts.forks
                                    << ", held " << counts.held << ", in doubt " << counts.in_doubt << ", questions "
                                    << counts.questions << ", waiting " << counts.waiting;
    }
  }

  std::mt19937_64 random_;
  Cluster cluster_;
  std::vector<Held> held_[kGroupSize];
  bool dead_[kGroupSize] = {};
  size_t last_number_ = 0;
  size_t deaths_left_ = 0;
  size_t uses_ = 0;
};

TEST_P(RRefDeath, OneLeavesNothingAndTakesNothing) { RunWith(1); }
TEST_P(RRefDeath, TwoLeaveNothingAndTakeNothing) { RunWith(2); }

INSTANTIATE_TEST_SUITE_P(Seeds, RRefDeath, testing::Range(0, kDeathSeeds));

}  // namespace
}  // namespace gradwire::sim
