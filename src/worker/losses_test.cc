// Who is lost is told once to each callback, in order, whenever the callback was added.
#include "worker/losses.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "base/executor.h"

namespace gradwire {
namespace {

// Runs what is posted when it is told to.
class PostedTasks final : public Executor {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  void PostHandler(uint64_t, Task task) override { Post(std::move(task)); }
  bool Await(Event&, std::optional<Duration>) override { return false; }
  bool InTask() const override { return false; }
  bool OwnsThisThread() const override { return false; }
  void Run() {
    while (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
};

class LossesTest : public testing::Test {
 protected:
  void Lose(const std::string& name, const std::string& type = {}) {
    losses->Add({name, 1, 7}, {.code = ErrorCode::kDisconnected, .text = name + " broke", .type_name = type});
  }
  Losses::Callback Into(std::vector<std::string>& told) {
    return [&](const WorkerInfo& worker, const Failure& reason) { told.push_back(worker.name + ": " + reason.text); };
  }

  const std::shared_ptr<PostedTasks> executor = std::make_shared<PostedTasks>();
  const std::shared_ptr<Losses> losses = std::make_shared<Losses>(executor);
};

TEST_F(LossesTest, EachIsToldOnceToEachCallbackAlsoToThoseAddedLater) {
  std::vector<std::string> early, late;
  losses->Listen(Into(early));
  Lose("a");
  EXPECT_EQ(early.size(), 0u) << "nothing runs where the loss was seen: that may be under a role";
  executor->Run();
  Lose("b");
  losses->Listen(Into(late));
  executor->Run();
  Lose("c");
  executor->Run();
  const std::vector<std::string> all{"a: a broke", "b: b broke", "c: c broke"};
  EXPECT_EQ(early, all);
  EXPECT_EQ(late, all);
}

TEST_F(LossesTest, WhoLeavesIsNotLostNorWhoEndsAfterTheEnd) {
  std::vector<std::string> told;
  losses->Listen(Into(told));
  Lose("a", std::string(kHasLeft));
  Lose("b");
  losses->Close();
  Lose("c");
  executor->Run();
  EXPECT_EQ(told, std::vector<std::string>());
}

TEST_F(LossesTest, WhatACallbackThrowsKeepsNothingFromTheOthers) {
  std::vector<std::string> told;
  losses->Listen([](const WorkerInfo&, const Failure&) { throw std::runtime_error("planted"); });
  losses->Listen(Into(told));
  Lose("a");
  Lose("b");
  executor->Run();
  EXPECT_EQ(told, (std::vector<std::string>{"a: a broke", "b: b broke"}));
}

TEST_F(LossesTest, OneCallbackRunsAtATime) {
  std::vector<std::string> told;
  losses->Listen([&](const WorkerInfo& worker, const Failure&) {
    told.push_back(worker.name);
    if (worker.name == "a") Lose("b");
    executor->Run();  // as another thread of the pool would
    told.push_back(worker.name);
  });
  Lose("a");
  executor->Run();
  EXPECT_EQ(told, (std::vector<std::string>{"a", "a", "b", "b"}));
}

TEST_F(LossesTest, TheNewestAreKeptForLateCallbacks) {
  std::vector<std::string> told;
  for (int i = 0; i < 1005; ++i) Lose(std::to_string(i));
  losses->Listen(Into(told));
  executor->Run();
  ASSERT_EQ(told.size(), 1000u);
  EXPECT_EQ(told.front(), "5: 5 broke");
}

}  // namespace
}  // namespace gradwire
