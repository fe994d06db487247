// How connections and transports begin and end (C1): in time, once, and with a reason.
#include <thread>

#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

using Closing = Contract;

const Failure kReason{.code = ErrorCode::kCancelled, .text = "because"};

TEST_P(Closing, ConnectingToNobodyFailsAndNamesTheAddress) {
  const auto [connection, failure] = TryConnect(wiring_->nobody(), std::chrono::seconds(10));
  EXPECT_EQ(connection, nullptr);
  EXPECT_EQ(failure.code, ErrorCode::kDisconnected);
  EXPECT_NE(failure.text.find(wiring_->nobody()), std::string::npos) << failure.text;
}

TEST_P(Closing, AnAddressThatCannotBeIsInvalid) {
  const auto [connection, failure] = TryConnect("nonsense", std::chrono::seconds(10));
  EXPECT_EQ(connection, nullptr);
  EXPECT_EQ(failure.code, ErrorCode::kInvalid);
}

TEST_P(Closing, CloseWritesWhatTheSourceStillGives) {
  Line line = ConnectAndStart();
  line.far->SetBodyLimit(20'000);
  for (uint64_t n = 0; n < 300; ++n) line.from_near->Put(MakeRequest(n, std::string(10'000, 'x')));
  line.from_near->Put(MakeBulk(300, MakeBytes(3'000'000, 1)));
  line.near->Close(kReason);
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_EQ(line.at_far->TakeFrames().size(), 301u);
  EXPECT_EQ(line.at_far->reason().code, ErrorCode::kDisconnected);
  ASSERT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_near->reason().code, kReason.code);
  EXPECT_EQ(line.at_near->reason().text, kReason.text);
}

// What the other side sends at that moment must not cost it what it has not read yet.
TEST_P(Closing, UnreadFramesDoNotCostTheOtherSideItsOwn) {
  for (int round = 0; round < 20; ++round) {
    Line line = ConnectAndStart();
    for (uint64_t n = 0; n < 50; ++n) {
      line.SendNear(MakeRequest(n, "a"));
      line.SendFar(MakeRequest(n, std::string(1000, 'b')));
    }
    line.near->Close(kReason);
    for (uint64_t n = 0; n < 50; ++n) line.SendFar(MakeRequest(n, std::string(1000, 'c')));
    ASSERT_TRUE(line.at_far->WaitForClosed());
    EXPECT_EQ(line.at_far->TakeFrames().size(), 50u);
    ASSERT_TRUE(line.at_near->WaitForClosed());
  }
}

TEST_P(Closing, CloseEndsAlthoughTheOtherSideDoesNotRead) {
  Line line = Connect();
  line.StartNear();
  line.SendNear(MakeBulk(1, MakeBytes(size_t{32} << 20, 1)));
  line.near->Close(kReason);
  EXPECT_TRUE(line.at_near->WaitForClosed());
}

TEST_P(Closing, OnClosedComesOnceHoweverManyClose) {
  for (int round = 0; round < 30; ++round) {
    Line line = ConnectAndStart();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Way way = t % 2 ? line.near_way() : line.far_way();
        for (uint64_t n = 0; n < 20; ++n) way.Send(MakeRequest(n, "x"));
        way.connection->Close(kReason);
        t < 2 ? way.connection->Close(kReason) : way.connection->Abort(kReason);
        way.Send(MakeRequest(99, "perhaps"));
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_TRUE(line.at_near->WaitForClosed());
    EXPECT_TRUE(line.at_far->WaitForClosed());
  }
}

TEST_P(Closing, AReceiverMayCloseItsOwnConnection) {
  Line line = Connect();
  Connection* const far = line.far.get();
  line.at_far = std::make_shared<Recorder>([far](const wire::FrameHeader& header, const std::string&) {
    if (header.number == 1) far->Close(kReason);
  });
  line.Start();
  for (uint64_t n = 0; n < 5; ++n) line.from_near->Put(MakeRequest(n, ""));
  line.near->Wake();
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_EQ(line.at_far->reason().text, kReason.text);
  EXPECT_EQ(line.at_far->TakeFrames().size(), 2u);  // nothing is delivered after Close()
  EXPECT_TRUE(line.at_near->WaitForClosed());
}

TEST_P(Closing, AnExceptionOfTheReceiverCloses) {
  Line line = Connect();
  line.at_far = std::make_shared<Recorder>(
      [](const wire::FrameHeader&, const std::string&) { throw Error(ErrorCode::kPermissionDenied, "go away"); });
  line.Start();
  line.SendNear(MakeRequest(1, "knock"));
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_EQ(line.at_far->reason().code, ErrorCode::kInternal);
  EXPECT_NE(line.at_far->reason().text.find("go away"), std::string::npos);
  EXPECT_TRUE(line.at_near->WaitForClosed());
}

TEST_P(Closing, NothingIsPulledAfterTheEnd) {
  Line line = ConnectAndStart();
  line.near->Close(kReason);
  ASSERT_TRUE(line.at_near->WaitForClosed());
  ASSERT_TRUE(line.at_far->WaitForClosed());
  for (const Way& way : {line.near_way(), line.far_way()}) {
    way.Send(MakeRequest(1, "late"));
    way.connection->Close(kReason);
    way.connection->Abort(kReason);
    EXPECT_EQ(way.source->given(), 0u);
  }
  EXPECT_TRUE(line.at_far->TakeFrames().empty());
}

TEST_P(Closing, AConnectionMayEndBeforeItIsStarted) {
  Line line = Connect();
  line.StartFar();
  line.near->Close(kReason);
  ASSERT_TRUE(line.at_far->WaitForClosed());
  line.StartNear();
  ASSERT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_near->reason().text, kReason.text);
}

TEST_P(Closing, AConnectionMayBeAbortedBeforeItIsStarted) {
  Line line = Connect();
  line.StartFar();
  line.near->Abort(kReason);
  ASSERT_TRUE(line.at_far->WaitForClosed());  // though it is never started
  line.StartNear();
  ASSERT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_near->reason().text, kReason.text);
}

TEST_P(Closing, AConnectionThatIsClosedAndNeverStartedEnds) {
  Line line = Connect();
  line.StartFar();
  line.near->Close(kReason);
  EXPECT_TRUE(line.at_far->WaitForClosed());
}

TEST_P(Closing, LettingAConnectionGoUnstartedEndsIt) {
  Line line = Connect();
  line.StartFar();
  line.near.reset();
  EXPECT_TRUE(line.at_far->WaitForClosed());
}

TEST_P(Closing, StopEndsAllUnderTrafficAndNothingIsCalledAfterIt) {
  for (int round = 0; round < 5; ++round) {
    std::unique_ptr<Transport> stopped = wiring_->Make();
    std::vector<Line> lines;
    for (int i = 0; i < 3; ++i) {
      Line line;
      Event connected;
      stopped->Connect(address_, std::chrono::steady_clock::now() + kPatience,
                       [&](std::shared_ptr<Connection> connection, const Failure&) {
                         line.near = std::move(connection);
                         connected.Set();
                       });
      ASSERT_TRUE(connected.Wait(kPatience));
      line.far = accepted_.Take();
      line.Start();
      lines.push_back(line);
    }
    std::atomic<bool> go_on{true};
    std::vector<std::thread> senders;
    for (Line& line : lines) {
      for (const Way& way : {line.near_way(), line.far_way()}) {
        senders.emplace_back([&go_on, way] {
          const auto bytes = MakeBytes(100'000, 1);
          for (uint64_t n = 0; go_on; ++n) {
            way.Send(MakeRequest(n, "x"));
            if (n % 50 == 0) way.Send(MakeBulk(n, bytes));
            if (n % 20 == 0) std::this_thread::yield();
          }
        });
      }
    }
    for (Line& line : lines) EXPECT_TRUE(line.at_near->WaitForFrames(20));
    stopped->Stop();
    std::vector<int> calls;
    for (Line& line : lines) {
      EXPECT_TRUE(line.at_near->is_closed());
      calls.push_back(line.at_near->calls());
    }
    for (Line& line : lines) EXPECT_TRUE(line.at_far->WaitForClosed());
    go_on = false;
    for (auto& sender : senders) sender.join();
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at_near->calls(), calls[i]);
    stopped->Stop();
  }
}

TEST_P(Closing, StopFailsWhatIsStillConnecting) {
  for (int round = 0; round < 20; ++round) {
    std::unique_ptr<Transport> side = wiring_->Make();
    std::atomic<int> called{0};
    for (int i = 0; i < 10; ++i) {
      side->Connect(address_, std::chrono::steady_clock::now() + kPatience,
                    [&](const std::shared_ptr<Connection>& connection, const Failure& failure) {
                      EXPECT_TRUE(connection || !failure.text.empty());
                      ++called;
                    });
    }
    side->Stop();
    EXPECT_EQ(called, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Closing, kAllTransports, [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace gradwire::transport
