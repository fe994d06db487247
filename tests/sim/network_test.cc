// The simulated network: time, cuts, deaths, partitions, and a worker that stands still. Tests of sessions rely on it.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/sim_scheduler.h"
#include "transport/inproc/inproc_transport.h"
#include "transport_contract/queue_source.h"
#include "transport_contract/recorder.h"

namespace gradwire::transport {
namespace {

using sim::SimNode;
using sim::SimScheduler;
using std::chrono::milliseconds;

const Failure kWhy{.code = ErrorCode::kCancelled, .text = "because"};

class SimNetwork : public testing::Test {
 protected:
  struct Side {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
    std::shared_ptr<QueueSource> source = std::make_shared<QueueSource>();
    void Start(std::shared_ptr<Connection> started) {
      connection = std::move(started);
      connection->Start(recorder, source);
    }
    void Send(uint64_t first, uint64_t count) {
      for (uint64_t n = first; n < first + count; ++n) source->Put(MakeRequest(n, "x"));
      connection->Wake();
    }
    std::vector<uint64_t> Numbers() {
      std::vector<uint64_t> numbers;
      for (const Received& frame : recorder->TakeFrames()) numbers.push_back(frame.number());
      return numbers;
    }
  };
  struct Worker {
    std::shared_ptr<SimNode> node;
    std::unique_ptr<InprocTransport> transport;
    std::string address;
    std::vector<std::shared_ptr<Connection>> accepted;
  };

  explicit SimNetwork(InprocNetwork::Options options = {}) {
    options.clock = scheduler_;
    if (options.most == Duration{}) options.most = milliseconds(10);
    network_ = std::make_unique<InprocNetwork>(options);
    for (Worker& worker : workers_) {
      worker.node = std::make_shared<SimNode>(scheduler_);
      worker.transport = std::make_unique<InprocTransport>(*network_, worker.node);
      worker.address = worker.transport->Listen(
          [&worker](std::shared_ptr<Connection> connection) { worker.accepted.push_back(std::move(connection)); });
    }
  }
  ~SimNetwork() override {
    for (Worker& worker : workers_) {
      worker.node->Thaw();
      worker.transport->Stop();
    }
    scheduler_->RunReady();
    scheduler_->DropTimers();
  }

  // Nothing is set where the attempt has not ended.
  struct Attempt {
    bool over = false;
    std::shared_ptr<Connection> connection;
    Failure failure;
  };
  std::shared_ptr<Attempt> TryConnect(size_t from, const std::string& to, Duration limit = milliseconds(100)) {
    auto attempt = std::make_shared<Attempt>();
    workers_[from].transport->Connect(to, scheduler_->Now() + limit,
                                      [attempt](std::shared_ptr<Connection> connection, const Failure& failure) {
                                        EXPECT_FALSE(attempt->over);
                                        *attempt = {true, std::move(connection), failure};
                                      });
    return attempt;
  }
  // A started connection, from both sides.
  std::pair<Side, Side> Connect(size_t from, size_t to) {
    const auto attempt = TryConnect(from, workers_[to].address);
    Advance(100);
    std::pair<Side, Side> sides;
    sides.first.Start(attempt->connection);
    sides.second.Start(workers_[to].accepted.back());
    Advance(0);
    return sides;
  }
  void Advance(int ms) { scheduler_->Advance(milliseconds(ms)); }

  static std::vector<uint64_t> Count(uint64_t first, uint64_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t& number : numbers) number = first++;
    return numbers;
  }

  const std::shared_ptr<SimScheduler> scheduler_ = std::make_shared<SimScheduler>(3);
  std::unique_ptr<InprocNetwork> network_;
  Worker workers_[3];
};

TEST_F(SimNetwork, FramesTakeTheirTimeAndKeepTheirOrder) {
  auto [near, far] = Connect(0, 1);
  near.Send(0, 200);
  far.Send(0, 200);
  EXPECT_EQ(far.recorder->calls(), 0);  // a wake runs no receiver
  scheduler_->RunReady();
  EXPECT_LT(far.recorder->calls(), 200);
  Advance(10);
  EXPECT_EQ(far.Numbers(), Count(0, 200));
  EXPECT_EQ(near.Numbers(), Count(0, 200));
}

TEST_F(SimNetwork, ConnectsTakeTheirTime) {
  const auto attempt = TryConnect(0, workers_[1].address);
  scheduler_->RunReady();
  EXPECT_FALSE(attempt->over);
  Advance(20);
  EXPECT_TRUE(attempt->connection);
  EXPECT_EQ(workers_[1].accepted.size(), 1u);
}

TEST_F(SimNetwork, AConnectThatTakesTooLongIsUnreachable) {
  bool one_was_accepted_in_vain = false;
  for (int round = 0; round < 50; ++round) {
    const auto attempt = TryConnect(0, workers_[1].address, milliseconds(1));
    Advance(1);
    EXPECT_TRUE(attempt->over);
    if (attempt->connection) continue;
    EXPECT_EQ(attempt->failure.code, ErrorCode::kUnreachable);
    Advance(30);
    if (workers_[1].accepted.size() == 0) continue;
    one_was_accepted_in_vain = true;
    Side far;
    far.Start(std::exchange(workers_[1].accepted, {}).back());
    Advance(30);
    EXPECT_TRUE(far.recorder->is_closed());
  }
  EXPECT_TRUE(one_was_accepted_in_vain);
}

TEST_F(SimNetwork, OfACutEachDirectionKeepsWhatItsOwnAnswerSays) {
  auto [near, far] = Connect(0, 1);
  near.Send(0, 10);
  far.Send(0, 5);
  network_->Cut(workers_[1].address, [](size_t waiting) { return waiting == 10 ? 7 : 1; });
  near.Send(10, 1);
  Advance(20);
  EXPECT_EQ(far.Numbers(), Count(0, 7));
  EXPECT_EQ(near.Numbers(), Count(0, 1));
  for (Side* side : {&near, &far}) {
    EXPECT_TRUE(side->recorder->is_closed());
    EXPECT_EQ(side->recorder->reason().code, ErrorCode::kDisconnected);
    EXPECT_EQ(side->source->given(), side->source->released_numbers().size());
  }
  EXPECT_EQ(near.source->given(), 10u);  // a broken line is not pulled into
}

TEST_F(SimNetwork, ACutBetweenTwoLeavesTheThird) {
  auto [near, far] = Connect(0, 1);
  auto [near_third, third] = Connect(0, 2);
  network_->Cut(workers_[1].address, workers_[0].address);
  near_third.Send(0, 3);
  Advance(20);
  EXPECT_TRUE(near.recorder->is_closed());
  EXPECT_TRUE(far.recorder->is_closed());
  EXPECT_EQ(third.Numbers(), Count(0, 3));
  EXPECT_EQ(TryConnect(0, workers_[1].address)->over, false);
  Advance(20);
  EXPECT_EQ(workers_[1].accepted.size(), 2u);
}

TEST_F(SimNetwork, WhoIsKilledIsRefusedAndRefuses) {
  auto [near, far] = Connect(0, 1);
  auto [other_near, other_far] = Connect(1, 2);
  const auto on_its_way = TryConnect(0, workers_[1].address);
  network_->Kill(workers_[1].address);
  const auto to_it = TryConnect(0, workers_[1].address), by_it = TryConnect(1, workers_[2].address);
  const auto others = TryConnect(0, workers_[2].address);
  Advance(30);
  for (Side* side : {&near, &far, &other_near, &other_far}) EXPECT_TRUE(side->recorder->is_closed());
  for (const auto& attempt : {on_its_way, to_it, by_it}) {
    EXPECT_TRUE(attempt->over);
    EXPECT_EQ(attempt->connection, nullptr);
    EXPECT_EQ(attempt->failure.code, ErrorCode::kDisconnected);
  }
  EXPECT_TRUE(others->connection);
}

TEST_F(SimNetwork, BetweenPartsNothingArrivesUntilTheyHeal) {
  auto [near, far] = Connect(0, 1);
  auto [near_third, third] = Connect(1, 2);
  near.Send(0, 3);
  network_->Part({workers_[0].address}, {workers_[1].address, workers_[2].address});
  near.Send(3, 3);
  near_third.Send(0, 3);
  far.connection->Close(kWhy);
  const auto attempt = TryConnect(2, workers_[0].address, milliseconds(50));
  Advance(49);
  EXPECT_FALSE(attempt->over);
  EXPECT_EQ(third.Numbers(), Count(0, 3));
  Advance(1);
  EXPECT_TRUE(attempt->over);
  EXPECT_EQ(attempt->failure.code, ErrorCode::kUnreachable);
  EXPECT_FALSE(near.recorder->is_closed());
  network_->Heal();
  Advance(20);
  EXPECT_TRUE(near.recorder->is_closed());
}

TEST_F(SimNetwork, AfterTheHealWhatWaitedArrives) {
  auto [near, far] = Connect(0, 1);
  network_->Part({workers_[0].address}, {workers_[1].address});
  near.Send(0, 5);
  far.Send(0, 5);
  Advance(1000);
  EXPECT_EQ(near.recorder->calls() + far.recorder->calls(), 0);
  network_->Heal();
  Advance(20);
  EXPECT_EQ(far.Numbers(), Count(0, 5));
  EXPECT_EQ(near.Numbers(), Count(0, 5));
  EXPECT_TRUE(TryConnect(0, workers_[1].address));
}

TEST_F(SimNetwork, AConnectionCutWhileThePartsAreApartIsSeenAfterTheHeal) {
  auto [near, far] = Connect(0, 1);
  network_->Part({workers_[0].address}, {workers_[1].address});
  near.Send(0, 5);
  network_->Cut(workers_[0].address, [](size_t waiting) { return waiting / 2; });
  Advance(1000);
  EXPECT_FALSE(far.recorder->is_closed());
  network_->Heal();
  Advance(20);
  EXPECT_EQ(far.Numbers(), Count(0, 2));
  EXPECT_TRUE(far.recorder->is_closed());
  EXPECT_TRUE(near.recorder->is_closed());
}

TEST_F(SimNetwork, AnAbortMayLoseWhatIsOnItsWay) {
  size_t lost = 0, arrived = 0;
  for (int round = 0; round < 20; ++round) {
    auto [near, far] = Connect(0, 1);
    near.Send(0, 10);
    near.connection->Abort(kWhy);
    Advance(30);
    EXPECT_TRUE(near.recorder->is_closed());
    EXPECT_TRUE(far.recorder->is_closed());
    const auto numbers = far.Numbers();
    EXPECT_EQ(numbers, Count(0, numbers.size()));
    lost += 10 - numbers.size();
    arrived += numbers.size();
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(arrived, 0u);
}

TEST_F(SimNetwork, CloseLosesNothing) {
  auto [near, far] = Connect(0, 1);
  near.Send(0, 10);
  near.connection->Close(kWhy);
  Advance(30);
  EXPECT_EQ(far.Numbers(), Count(0, 10));
  EXPECT_TRUE(far.recorder->is_closed());
  EXPECT_TRUE(near.recorder->is_closed());
}

TEST_F(SimNetwork, AFrozenWorkerNeitherReadsNorWrites) {
  auto [near, far] = Connect(0, 1);
  const auto bytes = MakeBytes(size_t{1} << 20, 1);
  for (uint64_t n = 0; n < 30; ++n) near.source->Put(MakeBulk(n, bytes));
  near.connection->Wake();
  const size_t given = near.source->given();
  EXPECT_LT(given, 30u);
  workers_[0].node->Freeze();
  far.Send(0, 5);
  Advance(100);
  EXPECT_EQ(near.source->given(), given);
  EXPECT_EQ(far.Numbers(), Count(0, given));
  EXPECT_EQ(near.recorder->calls(), 0);
  workers_[0].node->Thaw();
  Advance(200);
  EXPECT_EQ(near.Numbers(), Count(0, 5));
  EXPECT_EQ(far.Numbers(), Count(given, 30 - given));
}

// What a run of random events looks like, from the outside.
std::string RunOf(uint64_t seed) {
  auto scheduler = std::make_shared<SimScheduler>(seed);
  InprocNetwork network({.clock = scheduler, .least = milliseconds(1), .most = milliseconds(9), .seed = seed});
  InprocTransport one(network, scheduler), other(network, scheduler);
  std::shared_ptr<Connection> accepted, connected;
  const std::string address = other.Listen([&](std::shared_ptr<Connection> connection) { accepted = connection; });
  one.Connect(address, scheduler->Now() + milliseconds(100),
              [&](std::shared_ptr<Connection> connection, const Failure&) { connected = connection; });
  scheduler->Advance(milliseconds(50));
  std::string log;
  const TimePoint start = scheduler->Now();
  const auto recorder = std::make_shared<Recorder>([&](const wire::FrameHeader& header, const std::string&) {
    log += std::to_string(header.number) + "@" + std::to_string((scheduler->Now() - start).count()) + " ";
  });
  const auto source = std::make_shared<QueueSource>();
  connected->Start(std::make_shared<Recorder>(), source);
  accepted->Start(recorder, std::make_shared<QueueSource>());
  for (uint64_t n = 0; n < 20; ++n) {
    source->Put(MakeRequest(n, ""));
    connected->Wake();
  }
  std::mt19937_64 random(seed);
  scheduler->CallAt(start + milliseconds(5),
                    [&] { network.Cut(address, [&](size_t waiting) { return random() % (waiting + 1); }); });
  scheduler->Advance(milliseconds(50));
  log += recorder->reason().text;
  one.Stop();
  other.Stop();
  scheduler->RunReady();
  scheduler->DropTimers();
  return log;
}

TEST(SimNetworkRuns, TheSameSeedGivesTheSameRun) {
  EXPECT_EQ(RunOf(1), RunOf(1));
  EXPECT_NE(RunOf(1), RunOf(2));
}

// Without a clock there is no time to wait for.
TEST(SimNetworkWithoutClock, AConnectBetweenPartsFailsAtOnce) {
  auto scheduler = std::make_shared<SimScheduler>(1);
  InprocNetwork network;
  InprocTransport one(network, scheduler), other(network, scheduler);
  const std::string from = one.Listen([](const auto&) {}), to = other.Listen([](const auto&) {});
  network.Part({to}, {from});
  Failure told;
  one.Connect(to, scheduler->Now() + milliseconds(1),
              [&](const std::shared_ptr<Connection>&, const Failure& failure) { told = failure; });
  scheduler->RunReady();
  EXPECT_EQ(told.code, ErrorCode::kUnreachable);
}

}  // namespace
}  // namespace gradwire::transport
