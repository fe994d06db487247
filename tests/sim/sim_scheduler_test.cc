// The simulation itself: time, and nodes that are frozen.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradwire/error.h"
#include "sim/sim_scheduler.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;

class SimNodes : public testing::Test {
 protected:
  ~SimNodes() override { scheduler_->DropTimers(); }
  // A task that notes that it has run, and when.
  Task Note(const std::string& name) {
    return
        [this, name] { log_.push_back(name + "@" + std::to_string((scheduler_->Now() - start_) / milliseconds(1))); };
  }
  TimePoint At(int ms) const { return start_ + milliseconds(ms); }

  using Log = std::vector<std::string>;
  const std::shared_ptr<SimScheduler> scheduler_ = std::make_shared<SimScheduler>(7);
  const std::shared_ptr<SimNode> one_ = std::make_shared<SimNode>(scheduler_);
  const std::shared_ptr<SimNode> other_ = std::make_shared<SimNode>(scheduler_);
  const TimePoint start_ = scheduler_->Now();
  Log log_;
};

TEST_F(SimNodes, TasksOfAFrozenNodeWaitAndThenRun) {
  one_->Post(Note("before"));  // waits for its turn, so it is held too
  one_->Freeze();
  one_->Post(Note("after"));
  other_->Post(Note("other"));
  scheduler_->RunReady();
  EXPECT_EQ(log_, Log{"other@0"});
  scheduler_->Advance(milliseconds(5));
  one_->Thaw();
  scheduler_->RunReady();
  std::sort(log_.begin(), log_.end());
  EXPECT_EQ(log_, (Log{"after@5", "before@5", "other@0"}));
}

TEST_F(SimNodes, TimersOfAFrozenNodeFireLateAndInOrder) {
  one_->CallAt(At(1), Note("one"));
  one_->CallAt(At(2), Note("two"));
  one_->CallAt(At(20), Note("twenty"));
  other_->CallAt(At(3), Note("other"));
  one_->Freeze();
  scheduler_->Advance(milliseconds(10));
  EXPECT_EQ(log_, Log{"other@3"});
  one_->Thaw();
  scheduler_->Advance(milliseconds(20));
  EXPECT_EQ(log_, (Log{"other@3", "one@10", "two@10", "twenty@20"}));
}

TEST_F(SimNodes, ATimerCanBeCancelledBeforeAndWhileItIsHeldAndAfterTheThaw) {
  std::vector<TimerId> timers;
  for (int ms = 1; ms <= 4; ++ms) timers.push_back(one_->CallAt(At(ms), Note("never")));
  one_->Cancel(timers[0]);
  one_->Freeze();
  scheduler_->Advance(milliseconds(10));
  one_->Cancel(timers[1]);
  one_->Thaw();
  one_->Cancel(timers[2]);
  one_->CallAt(At(10), Note("new"));
  one_->Cancel(timers[3]);
  scheduler_->Advance(milliseconds(10));
  EXPECT_EQ(log_, Log{"new@10"});
}

TEST_F(SimNodes, AProgramOfAFrozenNodeGoesOnWithTheThaw) {
  Event answer, in_time;
  scheduler_->Spawn([&] {
    EXPECT_TRUE(one_->Await(answer));
    Note("answered")();
    EXPECT_FALSE(one_->Await(in_time, milliseconds(3)));
    Note("timed out")();
  });
  scheduler_->RunReady();
  one_->Freeze();
  answer.Set();
  scheduler_->Advance(milliseconds(10));
  EXPECT_EQ(log_, Log{});
  one_->Thaw();
  scheduler_->RunReady();
  EXPECT_EQ(log_, Log{"answered@10"});
  scheduler_->Advance(milliseconds(10));
  EXPECT_EQ(log_, (Log{"answered@10", "timed out@13"}));
}

TEST_F(SimNodes, AWaitInATaskOfAFrozenNodeGoesOnWithTheThaw) {
  Event answer;
  one_->Post([&] {
    EXPECT_TRUE(one_->Await(answer));
    Note("answered")();
  });
  scheduler_->CallAt(At(1), [&] { one_->Freeze(); });
  scheduler_->CallAt(At(2), [&] { answer.Set(); });
  other_->CallAt(At(3), Note("other"));
  scheduler_->CallAt(At(9), [&] { one_->Thaw(); });
  scheduler_->RunReady();
  EXPECT_EQ(log_, (Log{"other@3", "answered@9"}));
}

TEST_F(SimNodes, AWaitThatNothingThawsIsAnError) {
  Event answer;
  answer.Set();
  one_->Freeze();
  EXPECT_THROW(one_->Await(answer, milliseconds(1)), Error);
}

TEST_F(SimNodes, DroppedTimersAreGoneWhetherHeldOrNot) {
  one_->CallAt(At(1), Note("never"));
  one_->CallAt(At(20), Note("never"));
  one_->Freeze();
  scheduler_->Advance(milliseconds(10));
  one_->DropTimers();
  one_->Thaw();
  scheduler_->Advance(milliseconds(20));
  EXPECT_EQ(log_, Log{});
}

}  // namespace
}  // namespace gradwire::sim
