// Frames on any transport: order, lanes, bulk bytes, limits (O1, C4).
#include <thread>

#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

TEST_P(Contract, O1FramesOfALaneKeepTheirOrder) {
  Line line = ConnectAndStart();
  for (uint64_t n = 0; n < 2000; ++n) line.near->Send(MakeFrame(n, std::string(n % 97, 'x')), Lane::kHeaders);
  ASSERT_TRUE(line.at_far->WaitForFrames(2000));
  const auto frames = line.at_far->TakeFrames();
  for (uint64_t n = 0; n < 2000; ++n) {
    ASSERT_EQ(frames[n].header.number, n);
    ASSERT_EQ(frames[n].body, std::string(n % 97, 'x'));
  }
}

TEST_P(Contract, O1ManyThreadsSendAndEachKeepsItsOrder) {
  constexpr uint64_t kThreads = 8, kFrames = 400;
  Line line = ConnectAndStart();
  std::vector<std::thread> senders;
  for (uint64_t t = 0; t < kThreads; ++t) {
    senders.emplace_back([&, t] {
      for (uint64_t n = 0; n < kFrames; ++n) {
        Connection& way = *(t % 2 ? line.near : line.far);
        if (n % 10 == 9) {
          way.Send(MakeBulkFrame(t * kFrames + n, MakeBytes(20'000 + n, n)), Lane::kHeaders);
        } else {
          way.Send(MakeFrame(t * kFrames + n, std::to_string(n)), Lane::kHeaders);
        }
      }
    });
  }
  for (auto& sender : senders) sender.join();
  for (const auto& recorder : {line.at_near, line.at_far}) {
    ASSERT_TRUE(recorder->WaitForFrames(kThreads / 2 * kFrames));
    std::vector<uint64_t> next(kThreads, 0);
    for (const Received& frame : recorder->TakeFrames()) {
      const uint64_t t = frame.header.number / kFrames, n = frame.header.number % kFrames;
      ASSERT_EQ(n, next[t]++) << "of thread " << t;
      if (n % 10 == 9) {
        ASSERT_EQ(frame.bulk, *MakeBytes(20'000 + n, n));
      } else {
        ASSERT_EQ(frame.body, std::to_string(n));
      }
    }
  }
}

TEST_P(Contract, HeadersGoFirstAtAFrameBoundary) {
  Line line = ConnectAndStart();
  const auto bytes = MakeBytes(1000, 1);
  for (uint64_t n = 0; n < 5; ++n) line.near->Queue(MakeBulkFrame(n, bytes), Lane::kBulk);
  for (uint64_t n = 5; n < 8; ++n) line.near->Queue(MakeFrame(n, "h"), Lane::kHeaders);
  line.near->Flush();
  ASSERT_TRUE(line.at_far->WaitForFrames(8));
  std::vector<uint64_t> numbers;
  for (const Received& frame : line.at_far->TakeFrames()) numbers.push_back(frame.header.number);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{5, 6, 7, 0, 1, 2, 3, 4}));
}

TEST_P(Contract, AHeaderPassesBulkThatIsOnItsWay) {
  Line line = Connect();  // nobody reads yet: the line fills up
  const auto bytes = MakeBytes(size_t{1} << 20, 1);
  constexpr uint64_t kBulk = 32;
  for (uint64_t n = 0; n < kBulk; ++n) line.near->Send(MakeBulkFrame(n, bytes), Lane::kBulk);
  line.near->Send(MakeFrame(kBulk, "h"), Lane::kHeaders);
  line.Start();
  ASSERT_TRUE(line.at_far->WaitForFrames(kBulk + 1));
  const auto frames = line.at_far->TakeFrames();
  EXPECT_NE(frames.back().header.number, kBulk);
}

TEST_P(Contract, LargeBulkArrivesRight) {
  Line line = ConnectAndStart();
  const auto whole = MakeBytes(size_t{64} << 20, 7);
  line.near->Send(MakeBulkFrame(1, whole), Lane::kBulk);
  line.near->Send(MakeFrame(2, "behind"), Lane::kBulk);
  ASSERT_TRUE(line.at_far->WaitForFrames(2));
  const auto frames = line.at_far->TakeFrames();
  EXPECT_TRUE(frames[0].bulk == *whole);
  EXPECT_EQ(frames[1].body, "behind");
}

TEST_P(Contract, BulkOfAllSizesArrivesRightInBothDirections) {
  Line line = ConnectAndStart();
  const std::vector<size_t> sizes{0, 1, 31, 32, 33, 4095, 4096, 4097, 65'535, 65'536, 65'537, 262'144, 1'000'003};
  for (size_t i = 0; i < sizes.size(); ++i) {
    line.near->Send(MakeBulkFrame(i, MakeBytes(sizes[i], i)), Lane::kBulk);
    line.far->Send(MakeBulkFrame(i, MakeBytes(sizes[i], i)), Lane::kBulk);
  }
  for (const auto& recorder : {line.at_near, line.at_far}) {
    ASSERT_TRUE(recorder->WaitForFrames(sizes.size()));
    const auto frames = recorder->TakeFrames();
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(frames[i].header.number, i);
      EXPECT_TRUE(frames[i].bulk == *MakeBytes(sizes[i], i)) << sizes[i];
    }
  }
}

TEST_P(Contract, BulkIsLetGoOnceItIsWritten) {
  Line line = ConnectAndStart();
  auto bytes = MakeBytes(3'000'000, 1);
  const std::weak_ptr<const std::vector<std::byte>> watch = bytes;
  line.near->Send(MakeBulkFrame(1, std::move(bytes)), Lane::kBulk);
  ASSERT_TRUE(line.at_far->WaitForFrames(1));
  line.near->Send(MakeFrame(2, ""), Lane::kBulk);  // written after the first was let go
  ASSERT_TRUE(line.at_far->WaitForFrames(2));
  EXPECT_TRUE(watch.expired());
}

TEST_P(Contract, FramesSentByAReceiverArrive) {
  Line line = Connect();
  Connection* const far = line.far.get();
  line.at_far = std::make_shared<Recorder>([far](const wire::FrameHeader& header, const std::string& body) {
    far->Send(MakeFrame(header.number, body + "!"), Lane::kHeaders);
  });
  line.Start();
  for (uint64_t n = 0; n < 500; ++n) line.near->Send(MakeFrame(n, "hi"), Lane::kHeaders);
  ASSERT_TRUE(line.at_near->WaitForFrames(500));
  for (const Received& frame : line.at_near->TakeFrames()) EXPECT_EQ(frame.body, "hi!");
}

TEST_P(Contract, FramesWaitForStart) {
  Line line = Connect();
  line.near->Start(line.at_near);
  for (uint64_t n = 0; n < 3; ++n) line.near->Send(MakeFrame(n, "early"), Lane::kHeaders);
  line.far->Send(MakeFrame(9, "the other way"), Lane::kHeaders);
  ASSERT_TRUE(line.at_near->WaitForFrames(1));
  EXPECT_EQ(line.at_far->calls(), 0);
  line.far->Start(line.at_far);
  ASSERT_TRUE(line.at_far->WaitForFrames(3));
}

TEST_P(Contract, C4APeerThatDoesNotReadDelaysNobody) {
  Line deaf = Connect();
  Line line = ConnectAndStart();
  const auto bytes = MakeBytes(size_t{64} << 20, 3);
  deaf.near->Start(deaf.at_near);
  deaf.near->Send(MakeBulkFrame(1, bytes), Lane::kBulk);  // returns although the line takes a part only
  for (uint64_t n = 0; n < 100; ++n) {
    line.near->Send(MakeFrame(n, "there"), Lane::kHeaders);
    line.far->Send(MakeFrame(n, "and back"), Lane::kHeaders);
    ASSERT_TRUE(line.at_far->WaitForFrames(n + 1));
    ASSERT_TRUE(line.at_near->WaitForFrames(n + 1));
  }
  deaf.far->Start(deaf.at_far);
  ASSERT_TRUE(deaf.at_far->WaitForFrames(1));
  EXPECT_TRUE(deaf.at_far->TakeFrames()[0].bulk == *bytes);
}

TEST_P(Contract, ALongerBodyThanAllowedClosesTheConnection) {
  Line line = ConnectAndStart();
  line.near->Send(MakeFrame(1, std::string(Connection::kBodyBeforeHandshake, 'x')), Lane::kHeaders);
  ASSERT_TRUE(line.at_far->WaitForFrames(1));
  line.near->Send(MakeFrame(2, std::string(Connection::kBodyBeforeHandshake + 1, 'x')), Lane::kHeaders);
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_NE(line.at_far->reason().text.find("4097"), std::string::npos) << line.at_far->reason().text;
  EXPECT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_far->TakeFrames().size(), 1u);
}

TEST_P(Contract, LongBodiesArriveOnceTheyAreAllowed) {
  Line line = ConnectAndStart();
  line.far->SetBodyLimit(uint32_t{1} << 30);
  for (const size_t size : {5'000, 100'000, 20'000'000}) {
    line.near->Send(MakeFrame(size, std::string(size, static_cast<char>(size % 100))), Lane::kHeaders);
  }
  ASSERT_TRUE(line.at_far->WaitForFrames(3));
  for (const Received& frame : line.at_far->TakeFrames()) {
    EXPECT_TRUE(frame.body == std::string(frame.header.number, static_cast<char>(frame.header.number % 100)));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Contract,
                         testing::Values(std::pair{"tcp", &MakeTcpWiring}, std::pair{"inproc", &MakeInprocWiring}),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace gradwire::transport
