// Frames on any transport: order, bulk bytes, limits (O1, C4).
#include <thread>

#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

TEST_P(Contract, O1FramesKeepTheOrderOfTheirPull) {
  Line line = ConnectAndStart();
  for (uint64_t n = 0; n < 2000; ++n) line.SendNear(MakeRequest(n, std::string(n % 97, 'x')));
  ASSERT_TRUE(line.at_far->WaitForFrames(2000));
  const auto frames = line.at_far->TakeFrames();
  for (uint64_t n = 0; n < 2000; ++n) {
    ASSERT_EQ(frames[n].number(), n);
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
        const Way way = t % 2 ? line.near_way() : line.far_way();
        if (n % 10 == 9) {
          way.Send(MakeBulk(t * kFrames + n, MakeBytes(20'000 + n, n)));
        } else {
          way.Send(MakeRequest(t * kFrames + n, std::to_string(n)));
        }
      }
    });
  }
  for (auto& sender : senders) sender.join();
  for (const auto& recorder : {line.at_near, line.at_far}) {
    ASSERT_TRUE(recorder->WaitForFrames(kThreads / 2 * kFrames));
    std::vector<uint64_t> next(kThreads, 0);
    for (const Received& frame : recorder->TakeFrames()) {
      const uint64_t t = frame.number() / kFrames, n = frame.number() % kFrames;
      ASSERT_EQ(n, next[t]++) << "of thread " << t;
      if (n % 10 == 9) {
        ASSERT_EQ(frame.bulk, *MakeBytes(20'000 + n, n));
      } else {
        ASSERT_EQ(frame.body, std::to_string(n));
      }
    }
  }
}

TEST_P(Contract, WhatTheSourceHasLaterIsNotBehindAllThatItHad) {
  Line line = Connect();  // nobody reads yet: the line fills up
  const auto bytes = MakeBytes(size_t{1} << 20, 1);
  constexpr uint64_t kBulk = 32;
  for (uint64_t n = 0; n < kBulk; ++n) line.from_near->Put(MakeBulk(n, bytes));
  line.StartNear();
  line.near->Wake();
  ASSERT_TRUE(line.from_near->WaitForGiven(1));
  line.from_near->PutFirst(MakeRequest(kBulk, "h"));
  line.near->Wake();
  line.StartFar();
  ASSERT_TRUE(line.at_far->WaitForFrames(kBulk + 1));
  const auto frames = line.at_far->TakeFrames();
  EXPECT_NE(frames.back().number(), kBulk);
}

TEST_P(Contract, LargeBulkArrivesRight) {
  Line line = ConnectAndStart();
  const auto whole = MakeBytes(size_t{64} << 20, 7);
  line.SendNear(MakeBulk(1, whole));
  line.SendNear(MakeRequest(2, "behind"));
  ASSERT_TRUE(line.at_far->WaitForFrames(2));
  const auto frames = line.at_far->TakeFrames();
  EXPECT_TRUE(frames[0].bulk == *whole);
  EXPECT_EQ(frames[1].body, "behind");
}

TEST_P(Contract, BulkOfAllSizesArrivesRightInBothDirections) {
  Line line = ConnectAndStart();
  const std::vector<size_t> sizes{0, 1, 31, 32, 33, 4095, 4096, 4097, 65'535, 65'536, 65'537, 262'144, 1'000'003};
  for (size_t i = 0; i < sizes.size(); ++i) {
    line.SendNear(MakeBulk(i, MakeBytes(sizes[i], i)));
    line.SendFar(MakeBulk(i, MakeBytes(sizes[i], i)));
  }
  for (const auto& recorder : {line.at_near, line.at_far}) {
    ASSERT_TRUE(recorder->WaitForFrames(sizes.size()));
    const auto frames = recorder->TakeFrames();
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(frames[i].number(), i);
      EXPECT_TRUE(frames[i].bulk == *MakeBytes(sizes[i], i)) << sizes[i];
    }
  }
}

TEST_P(Contract, BulkIsLetGoOnceItIsWritten) {
  Line line = ConnectAndStart();
  auto bytes = MakeBytes(3'000'000, 1);
  const std::weak_ptr<const std::vector<std::byte>> watch = bytes;
  line.SendNear(MakeBulk(1, std::exchange(bytes, nullptr)));
  ASSERT_TRUE(line.at_far->WaitForFrames(1));
  line.SendNear(MakeRequest(2, ""));  // written after the first was let go
  ASSERT_TRUE(line.at_far->WaitForFrames(2));
  EXPECT_TRUE(watch.expired());
}

TEST_P(Contract, FramesSentByAReceiverArrive) {
  Line line = Connect();
  Connection* const far = line.far.get();
  QueueSource* const from_far = line.from_far.get();
  line.at_far = std::make_shared<Recorder>([far, from_far](const wire::FrameHeader& header, const std::string& body) {
    from_far->Put(MakeRequest(header.number, body + "!"));
    far->Wake();
  });
  line.Start();
  for (uint64_t n = 0; n < 500; ++n) line.SendNear(MakeRequest(n, "hi"));
  ASSERT_TRUE(line.at_near->WaitForFrames(500));
  for (const Received& frame : line.at_near->TakeFrames()) EXPECT_EQ(frame.body, "hi!");
}

TEST_P(Contract, FramesWaitForStart) {
  Line line = Connect();
  line.StartNear();
  for (uint64_t n = 0; n < 3; ++n) line.SendNear(MakeRequest(n, "early"));
  line.SendFar(MakeRequest(9, "the other way"));
  ASSERT_TRUE(line.from_near->WaitForGiven(3));
  EXPECT_EQ(line.at_far->calls(), 0);
  EXPECT_EQ(line.from_far->given(), 0u);
  line.StartFar();
  ASSERT_TRUE(line.at_far->WaitForFrames(3));
  ASSERT_TRUE(line.at_near->WaitForFrames(1));  // without a further Wake()
}

TEST_P(Contract, C4APeerThatDoesNotReadDelaysNobody) {
  Line deaf = Connect();
  Line line = ConnectAndStart();
  const auto bytes = MakeBytes(size_t{64} << 20, 3);
  deaf.StartNear();
  deaf.SendNear(MakeBulk(1, bytes));  // returns although the line takes a part only
  for (uint64_t n = 0; n < 100; ++n) {
    line.SendNear(MakeRequest(n, "there"));
    line.SendFar(MakeRequest(n, "and back"));
    ASSERT_TRUE(line.at_far->WaitForFrames(n + 1));
    ASSERT_TRUE(line.at_near->WaitForFrames(n + 1));
  }
  deaf.StartFar();
  ASSERT_TRUE(deaf.at_far->WaitForFrames(1));
  EXPECT_TRUE(deaf.at_far->TakeFrames()[0].bulk == *bytes);
}

TEST_P(Contract, ALongerBodyThanAllowedClosesTheConnection) {
  Line line = ConnectAndStart();
  line.SendNear(MakeRequest(1, std::string(Connection::kBodyBeforeHandshake, 'x')));
  ASSERT_TRUE(line.at_far->WaitForFrames(1));
  line.SendNear(MakeRequest(2, std::string(Connection::kBodyBeforeHandshake + 1, 'x')));
  ASSERT_TRUE(line.at_far->WaitForClosed());
  EXPECT_NE(line.at_far->reason().text.find("4097"), std::string::npos) << line.at_far->reason().text;
  EXPECT_TRUE(line.at_near->WaitForClosed());
  EXPECT_EQ(line.at_far->TakeFrames().size(), 1u);
}

TEST_P(Contract, LongBodiesArriveOnceTheyAreAllowed) {
  Line line = ConnectAndStart();
  line.far->SetBodyLimit(uint32_t{1} << 30);
  for (const size_t size : {5'000, 100'000, 20'000'000}) {
    line.SendNear(MakeRequest(size, std::string(size, static_cast<char>(size % 100))));
  }
  ASSERT_TRUE(line.at_far->WaitForFrames(3));
  for (const Received& frame : line.at_far->TakeFrames()) {
    EXPECT_TRUE(frame.body == std::string(frame.number(), static_cast<char>(frame.number() % 100)));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Contract, kAllTransports, [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace gradwire::transport
