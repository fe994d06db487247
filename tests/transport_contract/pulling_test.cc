// How any transport uses the source of a connection: what it pulls and when, and what it hands back (WAKE, O2).
#include <functional>
#include <thread>

#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

using Pulling = Contract;

const Failure kEnough{.code = ErrorCode::kCancelled, .text = "enough"};

// Does something else before it gives what it has. It may be pulled a last time when its test is over, so the hook owns
// what it uses.
class HookedSource : public QueueSource {
 public:
  using Hook = std::function<void(QueueSource&)>;
  explicit HookedSource(Hook hook) : hook_(std::move(hook)) {}
  void Next(size_t budget, std::vector<OutFrame>& frames) override {
    hook_(*this);
    QueueSource::Next(budget, frames);
  }

 private:
  Hook hook_;  // the write role's
};

// Minds another budget than the one that it is given.
class OwnBudget : public QueueSource {
 public:
  explicit OwnBudget(size_t budget) : budget_(budget) {}
  void Next(size_t, std::vector<OutFrame>& frames) override { QueueSource::Next(budget_, frames); }

 private:
  const size_t budget_;
};

void ExpectNumbers(const std::vector<Received>& frames, uint64_t count) {
  ASSERT_EQ(frames.size(), count);
  for (uint64_t n = 0; n < count; ++n) ASSERT_EQ(frames[n].number(), n);
}

TEST_P(Pulling, WhatThereIsAtTheStartIsPulledWithoutAWake) {
  Line line = Connect();
  for (uint64_t n = 0; n < 5; ++n) line.from_near->Put(MakeRequest(n, "early"));
  line.near->Wake();  // too early: means nothing yet
  line.Start();
  ASSERT_TRUE(line.at_far->WaitForFrames(5));
  ExpectNumbers(line.at_far->TakeFrames(), 5);
}

TEST_P(Pulling, ABudgetIsAboutAMiBAndAFewBatchesAreOnTheirWay) {
  Line line = Connect();
  const auto bytes = MakeBytes(size_t{1} << 19, 1);
  constexpr uint64_t kFrames = 200;
  for (uint64_t n = 0; n < kFrames; ++n) line.from_near->Put(MakeBulk(n, bytes));
  line.StartNear();
  ASSERT_TRUE(line.from_near->WaitForGiven(1));
  EXPECT_GE(line.from_near->smallest_budget(), size_t{1} << 18);
  EXPECT_LE(line.from_near->largest_budget(), size_t{1} << 22);
  EXPECT_LT(line.from_near->given(), kFrames);  // nobody reads
  line.StartFar();
  ASSERT_TRUE(line.at_far->WaitForFrames(kFrames));
  ExpectNumbers(line.at_far->TakeFrames(), kFrames);
}

TEST_P(Pulling, ASourceMayGiveFarLessOrFarMore) {
  for (const size_t budget : {size_t{1}, size_t{1} << 40}) {
    Line line = Connect();
    line.from_near = std::make_shared<OwnBudget>(budget);
    for (uint64_t n = 0; n < 3000; ++n) {
      line.from_near->Put(n % 10 == 0 ? MakeBulk(n, MakeBytes(3000, n)) : MakeRequest(n, std::string(n % 97, 'x')));
    }
    line.Start();
    ASSERT_TRUE(line.at_far->WaitForFrames(3000));
    ExpectNumbers(line.at_far->TakeFrames(), 3000);
  }
}

TEST_P(Pulling, EachFrameIsReleasedOnceInTheOrderOfItsPull) {
  Line line = ConnectAndStart();
  const auto bytes = MakeBytes(100'000, 1);
  for (uint64_t n = 0; n < 300; ++n) {
    line.SendNear(n % 3 == 0 ? MakeBulk(n, bytes) : MakeRequest(n, std::string(n, 'x')));
  }
  ASSERT_TRUE(line.from_near->WaitForReleased(300));  // although nothing else is ever sent
  const auto numbers = line.from_near->released_numbers();
  ASSERT_EQ(numbers.size(), 300u);
  for (uint64_t n = 0; n < 300; ++n) EXPECT_EQ(numbers[n], n);
}

// Each thread sends one frame, waits for it, and so on: the role is given back again and again while others wake.
TEST_P(Pulling, NoWakeOfManyThreadsIsLost) {
  constexpr uint64_t kThreads = 4, kRounds = 300;
  std::vector<Event> arrived(kThreads * kRounds);
  Line line = Connect();
  line.at_far = std::make_shared<Recorder>(
      [&](const wire::FrameHeader& header, const std::string&) { arrived[header.number].Set(); });
  line.Start();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t n = t * kRounds; n < (t + 1) * kRounds; ++n) {
        line.SendNear(MakeRequest(n, "x"));
        ASSERT_TRUE(arrived[n].Wait(kPatience)) << n;
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// As when a session owes an answer that it learns of while it is being pulled.
TEST_P(Pulling, AWakeInsideAPullIsSeen) {
  Line line = Connect();
  line.from_near = std::make_shared<HookedSource>(
      [near = std::weak_ptr(line.near), next = uint64_t{0}](QueueSource& source) mutable {
        const auto connection = near.lock();
        if (next >= 100 || !connection) return;
        connection->Wake();
        if (next % 2 == 0) source.Put(MakeRequest(next, "x"));
        ++next;
      });
  line.Start();
  ASSERT_TRUE(line.at_far->WaitForFrames(50));
}

TEST_P(Pulling, BulkThatGoesNowhereIsForgottenAndItsFrameTold) {
  Line line = Connect();
  line.at_far->wants_no_bulk = true;
  line.Start();
  const std::vector<size_t> sizes{1, 4095, 4096, 65'536, 3'000'000, 7};
  for (uint64_t n = 0; n < sizes.size(); ++n) {
    line.SendNear(MakeBulk(2 * n, MakeBytes(sizes[n], n)));
    line.SendNear(MakeRequest(2 * n + 1, "between"));
  }
  ASSERT_TRUE(line.at_far->WaitForFrames(2 * sizes.size()));
  const auto frames = line.at_far->TakeFrames();
  ExpectNumbers(frames, 2 * sizes.size());
  for (uint64_t n = 0; n < sizes.size(); ++n) {
    EXPECT_EQ(frames[2 * n].header.bulk_size, sizes[n]);
    EXPECT_EQ(frames[2 * n + 1].body, "between");
  }
}

TEST_P(Pulling, AbortPullsNoMore) {
  Line line = Connect();
  const auto bytes = MakeBytes(size_t{1} << 20, 1);
  for (uint64_t n = 0; n < 100; ++n) line.from_near->Put(MakeBulk(n, bytes));
  line.StartNear();
  ASSERT_TRUE(line.from_near->WaitForGiven(1));
  line.near->Abort(kEnough);
  ASSERT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_near->reason().text, kEnough.text);
  EXPECT_LT(line.from_near->given(), 100u);
  line.StartFar();
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_EQ(line.at_far->reason().code, ErrorCode::kDisconnected);
  const auto frames = line.at_far->TakeFrames();
  ExpectNumbers(frames, frames.size());  // perhaps some, in order
  EXPECT_LT(frames.size(), 100u);
}

TEST_P(Pulling, AbortCutsACloseShort) {
  Line line = Connect();
  const auto bytes = MakeBytes(size_t{1} << 20, 1);
  for (uint64_t n = 0; n < 50; ++n) line.from_near->Put(MakeBulk(n, bytes));
  line.StartNear();
  line.near->Close(kEnough);
  line.near->Abort({.code = ErrorCode::kInternal, .text = "the first reason counts"});
  ASSERT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_near->reason().text, kEnough.text);
}

// A writer that comes back when its connection has ended: what it brings is released, and nothing that is gone is used.
TEST_P(Pulling, ABatchOutlivesItsConnection) {
  Line line = Connect();
  const auto done = std::make_shared<std::atomic<bool>>(false);
  auto source = std::make_shared<HookedSource>(
      [done, recorder = line.at_near, near = std::weak_ptr(line.near), me = std::this_thread::get_id()](QueueSource&) {
        if (*done || std::this_thread::get_id() != me) return;
        *done = true;
        near.lock()->Abort(kEnough);
        EXPECT_TRUE(recorder->WaitForClosed());
      });
  line.from_near = source;
  line.Start();
  for (size_t sent = 1; !*done; ++sent) {  // until this thread pulls, and not another one
    line.SendNear(MakeRequest(0, ""));
    ASSERT_TRUE(*done || source->WaitForReleased(sent));
  }
  EXPECT_GT(source->given(), 0u);
  line = {};
  ASSERT_TRUE(source->WaitForReleased(source->given()));
}

// A share of the source and of the frames is all that keeps what a half-written frame needs.
TEST_P(Pulling, AHalfWrittenFrameIsReleasedWithItsConnection) {
  Line line = Connect();
  auto bytes = MakeBytes(size_t{64} << 20, 1);
  const std::weak_ptr<const std::vector<std::byte>> memory = bytes;
  line.from_near->Put(MakeBulk(0, std::exchange(bytes, nullptr)));
  line.StartNear();
  ASSERT_TRUE(line.from_near->WaitForGiven(1));
  line.far->Abort(kEnough);
  line.near->Abort(kEnough);
  ASSERT_TRUE(line.at_near->WaitForClosed());
  ASSERT_TRUE(line.from_near->WaitForReleased(1));
  EXPECT_TRUE(memory.expired());
}

INSTANTIATE_TEST_SUITE_P(Transports, Pulling, kAllTransports, [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace gradwire::transport
