// Whole workers of an open group, over TCP: they come, leave, crash and come again. Each interleaving in turn is in
// tests/sim/open_group_test.cc.
#include "worker/open_group.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "autograd/autograd.h"
#include "base/event.h"
#include "base/test_failure.h"
#include "gradwire/worker.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

class OpenGroupOfWorkers : public testing::Test {
 protected:
  struct Process {
    std::shared_ptr<MortalStore> store;
    std::unique_ptr<Worker> worker;
    Worker* operator->() const { return worker.get(); }
    // As a process that is killed, but that those who are connected see it close.
    void Crash() {
      store->Die();
      worker.reset();
    }
  };

  Process Start(const std::string& name, int rank, const std::function<void(Functions&)>& add = {}) {
    Process process{.store = std::make_shared<MortalStore>(store_), .worker = nullptr};
    WorkerOptions options{.name = name, .rank = rank, .world_size = WorkerOptions::kOpenGroup};
    options.store = process.store;
    options.functions = std::make_shared<Functions>();
    options.functions->Add("rank", [rank] { return int64_t{rank}; });
    if (add) add(*options.functions);
    process.worker = std::make_unique<Worker>(std::move(options));
    return process;
  }

  static int64_t RankOf(Worker& from, const std::string& to) {
    return from.rpc_sync<int64_t>(to, "rank", std::tuple<>());
  }
  static std::vector<std::string> NamesSeenBy(Worker& worker) {
    std::vector<std::string> names;
    for (const WorkerInfo& info : worker.worker_infos()) names.push_back(info.name);
    return names;
  }

  const std::shared_ptr<TestStore> store_ = std::make_shared<TestStore>();
};

TEST_F(OpenGroupOfWorkers, WhoHasLeftMayComeAgain) {
  const Process a = Start("a", 0);
  for (int round = 0; round < 3; ++round) {
    const Process b = Start("b", 1 + round);
    EXPECT_EQ(RankOf(*b.worker, "a"), 0);
    EXPECT_EQ(RankOf(*a.worker, "b"), 1 + round);
    b->shutdown();
  }
}

TEST_F(OpenGroupOfWorkers, ALivingWorkerKeepsItsNameAndItsRank) {
  const Process a = Start("a", 0);
  const Failure name = FailureOf([&] { Start("a", 1); });
  EXPECT_EQ(name.code, ErrorCode::kInvalid);
  EXPECT_NE(name.text.find("name 'a' is not unique"), std::string::npos) << name.text;
  const Failure rank = FailureOf([&] { Start("b", 0); });
  EXPECT_NE(rank.text.find("rank 0 is not unique"), std::string::npos) << rank.text;
  EXPECT_EQ(NamesSeenBy(*a.worker), std::vector<std::string>{"a"});
  const Process b = Start("b", 1);  // what was taken for the refused ones is free
  EXPECT_EQ(RankOf(*a.worker, "b"), 1);
}

TEST_F(OpenGroupOfWorkers, ACrashedWorkerLeavesItsNameAndItsRankToTheNext) {
  const Process a = Start("a", 0);
  Process c = Start("c", 2);
  for (const auto& [name, rank] : {std::pair<std::string, int>{"b", 1}, {"b", 5}, {"other", 5}, {"b", 1}}) {
    Process b = Start(name, rank);
    for (const Process* each : std::vector<const Process*>{&a, &c}) {
      EXPECT_EQ(RankOf(*each->worker, name), rank);
      EXPECT_EQ(RankOf(*b.worker, (*each)->info().name), (*each)->info().id);
    }
    EXPECT_EQ(NamesSeenBy(*b.worker).size(), 3u);
    b.Crash();
  }
  c.Crash();  // and when several are gone
  const Process b = Start("b", 1);
  const Process again = Start("c", 2);
  EXPECT_EQ(NamesSeenBy(*again.worker), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(RankOf(*b.worker, "c"), 2);
}

// A worker that asks whether the holder of its place lives has a rank, but no part in the group.
TEST_F(OpenGroupOfWorkers, ASecondOfANameEndsNoContextOfTheFirst) {
  const Process a = Start("a", 0);
  const Process b = Start("b", 1);
  const ContextId context = a->autograd().NewContext();
  EXPECT_EQ(FailureOf([&] { Start("a", 0); }).code, ErrorCode::kInvalid);
  EXPECT_EQ(RankOf(*b.worker, "a"), 0);
  EXPECT_TRUE(a->autograd().Knows(context));
}

TEST_F(OpenGroupOfWorkers, AReferenceWhoseOwnerIsGoneFailsByItselfAlone) {
  Failure use;
  const Process a = Start("a", 0);
  const Process b = Start("b", 1, [&](Functions& functions) {
    functions.Add("take", [&](const RRef<int64_t>& ref) {
      use = FailureOf([&] { ref.to_here(); });
      return int64_t{5};
    });
  });
  Process c = Start("c", 2);
  const RRef<int64_t> ref = a->remote<int64_t>("c", "rank", std::tuple<>());
  EXPECT_EQ(ref.to_here(), 2);
  EXPECT_EQ(RankOf(*b.worker, "c"), 2);
  c.Crash();
  const auto knows = [](Worker& worker) { return NamesSeenBy(worker).size() == 3; };
  while (knows(*a.worker) || knows(*b.worker)) std::this_thread::yield();  // no event tells of it
  EXPECT_EQ(a->rpc_sync<int64_t>("b", "take", std::tuple(ref)), 5);
  EXPECT_EQ(use.code, ErrorCode::kDisconnected) << use.text;
  EXPECT_EQ(RankOf(*a.worker, "b"), 1) << "the session lives";
}

TEST_F(OpenGroupOfWorkers, C1_GatheringsFailWithALostWorkerAndCountAnewWithTheNext) {
  const Process a = Start("a", 0);
  const std::vector<std::string> names{"a", "b"};
  for (int64_t life = 0; life < 3; ++life) {
    Process b = Start("b", 1);
    for (int64_t round = 0; round <= life; ++round) {
      std::thread other([&] { b->all_gather(round, names); });
      EXPECT_EQ(a->all_gather(round, names), (std::map<std::string, int64_t>{{"a", round}, {"b", round}}));
      other.join();
    }
    Failure failure;
    std::thread waiting([&] { failure = FailureOf([&] { a->barrier(names, {.timeout = milliseconds(0)}); }); });
    b.Crash();
    waiting.join();
    EXPECT_TRUE(failure.code == ErrorCode::kDisconnected || failure.code == ErrorCode::kUnknownWorker) << failure.text;
    EXPECT_NE(failure.text.find("'b'"), std::string::npos) << failure.text;
  }
}

TEST_F(OpenGroupOfWorkers, M2_ShutdownWaitsForItsOwnWorkAloneAndSaysWhatIsLeft) {
  Event release, started;
  const Process a = Start("a", 0);
  const Process b = Start("b", 1, [&](Functions& functions) {
    functions.Add("late", [&](int64_t value) {
      started.Set();
      release.Wait();
      return value;
    });
  });
  const Future<int64_t> late = a->rpc_async("b", Function<int64_t(int64_t)>{"late"}, int64_t{3});
  ASSERT_TRUE(started.Wait(std::chrono::seconds(60)));
  const Process c = Start("c", 2);
  c->shutdown();  // it has no work, and waits for nobody
  std::thread leaves([&] { b->shutdown(); });
  EXPECT_EQ(RankOf(*a.worker, "b"), 1) << "it serves meanwhile";
  release.Set();
  leaves.join();
  EXPECT_EQ(late.wait(), 3);
  const Failure gone = FailureOf([&] { RankOf(*a.worker, "b"); });
  EXPECT_EQ(gone.code, ErrorCode::kDisconnected);
  EXPECT_NE(gone.text.find("worker 'b' has left"), std::string::npos) << gone.text;
}

TEST_F(OpenGroupOfWorkers, M2_ATimeoutOfShutdownSaysWhatIsLeft) {
  std::vector<std::shared_ptr<IncomingCall>> kept;
  const Process a = Start("a", 0);
  const Process b = Start("b", 1, [&](Functions& functions) {
    functions.AddHandler("never", [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); });
  });
  const Future<void> never = a->rpc_async<void>("b", "never", std::tuple<>());
  const Failure failure = FailureOf([&] { a->shutdown(true, milliseconds(20)); });
  EXPECT_EQ(failure.code, ErrorCode::kTimedOut);
  EXPECT_NE(failure.text.find("1 calls of this worker and 0 calls of others are still under way"), std::string::npos)
      << failure.text;
  EXPECT_THROW(never.wait(), Error);
  b->shutdown(false);
  kept.clear();
}

}  // namespace
}  // namespace gradwire
