#include "rpc/session.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <utility>

#include "base/log.h"
#include "rpc/test_pair.h"

namespace gradwire::rpc {
namespace {

using std::chrono::milliseconds;
using Kind = wire::FrameKind;
using Names = std::vector<std::string>;

class SessionTest : public testing::Test {
 protected:
  void Send(const std::string& function, size_t floats = 0) {
    EXPECT_FALSE(pair.near->session->Enqueue(Kind::kRequest, RequestMessage(function, floats)));
    pair.near->session->Flush();
  }
  // A pair with an open path.
  HandPair::Line& Open() {
    Send("hello");
    HandPair::Line& line = pair.Connect(*pair.near);
    pair.Run();
    EXPECT_TRUE(pair.near->session->has_path() && pair.far->session->has_path());
    pair.far->header_steps.clear();
    pair.far->complete.clear();
    return line;
  }

  HandPair pair;
};

TEST_F(SessionTest, ConnectsOnFirstUseAndSendsWhatWaitedInOrder) {  // O1
  EXPECT_TRUE(pair.near->dials.empty());
  Send("first");
  Send("second");
  EXPECT_EQ(pair.near->dials.size(), 1u);
  pair.Connect(*pair.near);
  pair.Run();
  Send("third");
  pair.Run();
  EXPECT_EQ(pair.far->header_steps, (Names{"first", "second", "third"}));
  EXPECT_EQ(pair.far->complete.size(), 3u);
}

TEST_F(SessionTest, TheHeaderStepOfALargeMessageDoesNotWaitForItsBytes) {  // O1
  HandPair::Line& line = Open();
  const size_t floats = 60'000;
  Send("large", floats);
  Send("small");
  // The headers come first, whatever the order of the rest is.
  while (pair.far->header_steps.size() < 2) {
    ASSERT_FALSE(line.first->out.empty());
    line.second->Deliver(line.first->out.front());
    line.first->out.erase(line.first->out.begin());
  }
  EXPECT_EQ(pair.far->header_steps, (Names{"large", "small"}));
  pair.Run();
  ASSERT_EQ(pair.far->complete.size(), 2u);
  for (const wire::Request& request : pair.far->complete) {
    if (request.function != "large") continue;
    EXPECT_TRUE(request.args.tensors[0].equal(at::full({static_cast<int64_t>(floats)}, 2.5)));
  }
}

TEST_F(SessionTest, WhatABreakHasLostIsSentAgainAndNothingTwice) {  // O3
  for (size_t arrives = 0; arrives < 8; ++arrives) {
    HandPair fresh;
    const auto send = [&](const std::string& name, size_t floats) {
      fresh.near->session->Enqueue(Kind::kRequest, RequestMessage(name, floats));
      fresh.near->session->Flush();
    };
    send("hello", 0);
    HandPair::Line& line = fresh.Connect(*fresh.near);
    fresh.Run();
    send("one", 600'000);  // three pieces
    send("two", 0);
    send("three", 300'000);
    fresh.Cut(line, arrives);
    EXPECT_FALSE(fresh.near->session->has_path());
    fresh.clock.Advance(milliseconds(40));
    ASSERT_EQ(fresh.near->dials.size(), 2u) << "who made the lost path connects again";
    fresh.Connect(*fresh.near);
    fresh.Run();
    while (!fresh.far->lacking.empty()) {
      auto [number, storages] = std::move(fresh.far->lacking.front());
      fresh.far->lacking.erase(fresh.far->lacking.begin());
      wire::Allocate(storages);
      fresh.far->session->OnMemory(number, std::move(storages));
      fresh.Run();
    }
    EXPECT_EQ(fresh.far->header_steps, (Names{"hello", "one", "two", "three"})) << arrives;
    EXPECT_EQ(fresh.far->complete.size(), 4u) << arrives;
    EXPECT_TRUE(fresh.near->ended.empty() && fresh.far->ended.empty());
    EXPECT_TRUE(fresh.near->silent.empty());
  }
}

TEST_F(SessionTest, APairThatStaysWithoutAPathIsReportedAfterTheGraceTime) {
  HandPair::Line& line = Open();
  pair.Cut(line);
  pair.clock.Advance(milliseconds(250));
  EXPECT_TRUE(pair.near->silent.empty());
  pair.clock.Advance(milliseconds(100));
  ASSERT_EQ(pair.near->silent.size(), 1u);
  EXPECT_EQ(pair.near->silent[0].code, ErrorCode::kDisconnected);
  EXPECT_EQ(pair.near->silent[0].worker, "far");
  EXPECT_TRUE(pair.near->ended.empty()) << "whether it ends is not the session's choice";
}

TEST_F(SessionTest, APeerThatIsNotThereAnyMoreEndsThePairAtOnce) {
  Send("first");
  pair.near->session->OnDialFailed(pair.near->dials.back(), true, {.text = "nobody listens"});
  ASSERT_EQ(pair.near->ended.size(), 1u);
  EXPECT_EQ(pair.near->ended[0].code, ErrorCode::kUnreachable);
  EXPECT_NE(pair.near->ended[0].text.find("nobody listens"), std::string::npos);
  EXPECT_EQ(pair.near->first_never_sent, 1u) << "the call has not run";
  EXPECT_EQ(pair.near->drained, 1);
}

TEST_F(SessionTest, AnEndedSessionSaysWhichMessagesWereNeverSent) {  // O4
  HandPair::Line& line = Open();
  Send("sent");
  pair.Cut(line);
  Send("unsent");
  pair.near->session->End({.code = ErrorCode::kDisconnected, .text = "enough"});
  EXPECT_EQ(pair.near->first_never_sent, 3u);
  const auto refused = pair.near->session->Enqueue(Kind::kRequest, RequestMessage("late"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->text, "enough");
}

TEST_F(SessionTest, TheOtherSideOfAnEndLearnsTheReason) {
  Open();
  pair.near->session->End({.code = ErrorCode::kDisconnected, .text = "declared lost"});
  pair.Run();
  ASSERT_EQ(pair.far->ended.size(), 1u);
  EXPECT_EQ(pair.far->ended[0].text, "declared lost");
  EXPECT_EQ(pair.far->drained, 1);
  EXPECT_EQ(pair.near->drained, 1);
}

// M1: who thaws finds out by this, on the path or when it connects again.
TEST_F(SessionTest, WhoIsRemovedFromTheGroupLearnsInWhichEpoch) {
  for (const bool on_path : {true, false}) {
    HandPair pair;
    ASSERT_FALSE(pair.near->session->Enqueue(Kind::kRequest, RequestMessage("hello")));
    HandPair::Line& line = pair.Connect(*pair.near);
    pair.Run();
    if (!on_path) pair.Cut(line);
    pair.far->session->End({.code = ErrorCode::kDisconnected, .text = "declared lost"},
                           {.code = wire::RefuseCode::kRemoved, .epoch = 7});
    if (!on_path) {
      while (pair.near->dials.size() < 2) pair.clock.Advance(milliseconds(100));
      pair.Connect(*pair.near);
    }
    pair.Run();
    ASSERT_EQ(pair.near->ended.size(), 1u) << on_path;
    EXPECT_EQ(pair.near->ended[0].text, "declared lost");
    EXPECT_EQ(pair.near->session->ended_how().how, SessionEnd::How::kRemoved);
    EXPECT_EQ(pair.near->session->ended_how().epoch, 7u);
    EXPECT_EQ(pair.far->session->ended_how().how, SessionEnd::How::kHere);
  }
}

TEST_F(SessionTest, AnAcknowledgedMessageIsLetGo) {  // O3
  Open();
  auto tensor = std::make_shared<at::Tensor>(at::full({100}, 1.0));
  const std::weak_ptr<at::Tensor> watch = tensor;
  wire::EncodedMessage message = RequestMessage("keeps", 10'000);
  for (wire::BulkSource& source : message.bulk) {
    source.keep = std::shared_ptr<const void>(source.keep.get(), [source, tensor](const void*) {});
  }
  ASSERT_FALSE(message.bulk.empty());
  tensor.reset();
  pair.near->session->Enqueue(Kind::kRequest, std::move(message));
  EXPECT_FALSE(watch.expired());
  pair.near->session->Flush();
  pair.Run();
  pair.clock.Advance(milliseconds(20));  // the acknowledgment goes alone where nothing else goes back
  pair.Run();
  EXPECT_EQ(pair.far->complete.size(), 1u);
  EXPECT_TRUE(watch.expired());
}

TEST_F(SessionTest, BytesWithoutAPlaceComeAgainWhenThereIsOne) {
  Open();
  Send("huge", 5'000'000);  // 20 MB
  pair.Run();
  ASSERT_EQ(pair.far->lacking.size(), 1u);
  EXPECT_EQ(pair.far->header_steps, Names{"huge"});
  Send("small");
  pair.Run();
  ASSERT_EQ(pair.far->complete.size(), 1u) << "it does not wait for the memory of another";
  wire::Allocate(pair.far->lacking[0].second);
  pair.far->session->OnMemory(pair.far->lacking[0].first, std::move(pair.far->lacking[0].second));
  pair.Run();
  ASSERT_EQ(pair.far->complete.size(), 2u);
  EXPECT_TRUE(pair.far->complete[1].args.tensors[0].equal(at::full({5'000'000}, 2.5)));
}

TEST_F(SessionTest, AMessageWhoseMemoryIsNotToBeHadEndsAloneAndThePairGoesOn) {
  Open();
  Send("huge", 5'000'000);
  pair.Run();
  ASSERT_EQ(pair.far->lacking.size(), 1u);
  pair.far->session->OnMemory(pair.far->lacking[0].first, std::nullopt);
  pair.Run();
  ASSERT_EQ(pair.far->complete.size(), 1u);
  EXPECT_THROW(wire::CheckArrived(pair.far->complete[0].args), Error);
  Send("next");
  pair.Run();
  EXPECT_EQ(pair.far->complete.size(), 2u);
  EXPECT_TRUE(pair.far->ended.empty());
}

TEST_F(SessionTest, ALeaverIsGoneWhenAllHasArrivedAndNotBefore) {
  HandPair::Line& line = Open();
  Send("last words");
  bool gone = false;
  pair.near->session->Leave([&] { gone = true; });
  EXPECT_TRUE(pair.near->session->Enqueue(Kind::kRequest, RequestMessage("late")));
  EXPECT_FALSE(gone);
  pair.Cut(line);
  pair.clock.Advance(milliseconds(40));
  pair.Connect(*pair.near);
  EXPECT_FALSE(gone);
  pair.Run();
  EXPECT_TRUE(gone);
  EXPECT_EQ(pair.far->header_steps, Names{"last words"});
  ASSERT_EQ(pair.far->ended.size(), 1u);
  EXPECT_EQ(pair.far->ended[0].text, "worker 'near' has left");
  EXPECT_EQ(pair.far->ended[0].type_name, kHasLeft) << "it is not lost";
}

TEST_F(SessionTest, TwoThatLeaveAtOnceDoNotWaitForEachOther) {
  Open();
  int gone = 0;
  pair.near->session->Leave([&] { ++gone; });
  pair.far->session->Leave([&] { ++gone; });
  pair.Run();
  EXPECT_EQ(gone, 2);
}

TEST_F(SessionTest, WhoNeverMetIsLeftAtOnce) {
  bool gone = false;
  pair.near->session->Leave([&] { gone = true; });
  EXPECT_TRUE(gone);
}

TEST_F(SessionTest, ThatBothConnectAtOnceEndsInOnePath) {
  Send("from near");
  pair.far->session->Enqueue(Kind::kRequest, RequestMessage("from far"));
  pair.Connect(*pair.near);
  pair.Connect(*pair.far);
  pair.Run();
  for (int i = 0; i < 10 && pair.near->header_steps.empty(); ++i) {
    pair.clock.Advance(milliseconds(100));
    pair.Run();
  }
  EXPECT_EQ(pair.far->header_steps, Names{"from near"});
  EXPECT_EQ(pair.near->header_steps, Names{"from far"});
  EXPECT_TRUE(pair.near->ended.empty() && pair.far->ended.empty());
}

TEST_F(SessionTest, AReplayedHandshakeChangesNothing) {
  Send("hello");
  HandPair::Line& line = pair.Connect(*pair.near);
  std::vector<transport::OutFrame> recorded;
  while (!pair.far->session->has_path()) {
    ASSERT_FALSE(line.first->out.empty());
    for (auto& frame : std::exchange(line.first->out, {})) {
      recorded.push_back(frame);
      line.second->Deliver(frame);
    }
    for (auto& frame : std::exchange(line.second->out, {})) line.first->Deliver(frame);
  }
  pair.Run();
  const auto stranger = std::make_shared<HandConnection>();
  Link::Accept(pair.far, stranger);
  for (const auto& frame : recorded) stranger->Deliver(frame);
  EXPECT_TRUE(stranger->closing());
  stranger->TellEnd();
  Send("goes on");
  pair.Run();
  EXPECT_EQ(pair.far->header_steps, (Names{"hello", "goes on"}));
  EXPECT_TRUE(pair.far->ended.empty());
}

TEST_F(SessionTest, AnotherJobsKeyIsRefusedOnBothSides) {
  pair.far->key = "another";
  Send("hello");
  HandPair::Line& line = pair.Connect(*pair.near);
  pair.Run();
  EXPECT_TRUE(line.first->closing());
  EXPECT_FALSE(pair.near->session->has_path());
  EXPECT_TRUE(pair.far->header_steps.empty());
  ASSERT_EQ(pair.near->ended.size(), 1u) << "there is no other address to try";
  EXPECT_EQ(pair.near->ended[0].code, ErrorCode::kUnreachable);
  EXPECT_NE(pair.near->ended[0].text.find("belongs to another job"), std::string::npos);
}

TEST_F(SessionTest, AHelloOfAnotherVersionIsRefused) {
  wire::Hello hello{.from = {0, 4}, .from_name = "near", .to = {1, 5}};
  hello.version = 3;
  const auto stranger = std::make_shared<HandConnection>();
  Link::Accept(pair.far, stranger);
  stranger->Deliver(transport::MakeFrame({.kind = Kind::kHello}, wire::Encode(hello)));
  ASSERT_EQ(stranger->out.size(), 1u);
  const std::string body(stranger->out[0].head.data() + wire::FrameHeader::kSize,
                         stranger->out[0].head_size - wire::FrameHeader::kSize);
  const wire::Refuse refuse = wire::DecodeRefuse(body + std::string(stranger->out[0].body));
  EXPECT_EQ(refuse.code, wire::RefuseCode::kVersion);
  EXPECT_NE(refuse.text.find("3 and 2"), std::string::npos);
  EXPECT_TRUE(stranger->closing());
  stranger->TellEnd();
}

// A log and an error show what it wrote.
TEST_F(SessionTest, AStrangerCannotWriteMoreThanALineOfText) {
  std::vector<std::string> lines;
  const LogSink before = SetLogSink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const std::string name = "near\nerror: all is lost\x1b[2J\xff" + std::string(200, 'x');
  const auto stranger = std::make_shared<HandConnection>();
  Link::Accept(pair.far, stranger);
  stranger->Deliver(transport::MakeFrame({.kind = Kind::kHello}, wire::Encode(wire::Hello{.from_name = name})));
  stranger->TellEnd();
  SetLogSink(before);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("'near?error: all is lost?[2J?xxx"), std::string::npos) << lines[0];
  EXPECT_LT(lines[0].size(), 250u);

  Send("first");
  HandPair::Line& line = pair.Connect(*pair.near);
  line.first->Deliver(transport::MakeFrame(
      {.kind = Kind::kRefuse}, wire::Encode(wire::Refuse{.code = wire::RefuseCode::kKey, .text = "no\n\xff"})));
  ASSERT_EQ(pair.near->ended.size(), 1u);
  EXPECT_NE(pair.near->ended[0].text.find("no??"), std::string::npos);
}

TEST_F(SessionTest, OfTooManyThatSayNothingTheOldestGo) {
  HandPair::Line& line = Open();
  std::vector<std::shared_ptr<HandConnection>> strangers;
  for (size_t i = 0; i < HalfOpen::kMost; ++i) {
    strangers.push_back(std::make_shared<HandConnection>());
    Link::Accept(pair.far, strangers.back());
  }
  EXPECT_FALSE(strangers[0]->closing());
  strangers[5]->Break();
  strangers[5]->TellEnd();  // makes room by itself
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(std::make_shared<HandConnection>());
    Link::Accept(pair.far, strangers.back());
  }
  EXPECT_TRUE(strangers[0]->closing() && strangers[1]->closing());
  for (size_t i = 2; i < strangers.size(); ++i) EXPECT_EQ(strangers[i]->closing(), i == 5) << i;
  EXPECT_FALSE(line.second->closing()) << "who has proved itself is not among them";
  for (const auto& stranger : strangers) {
    stranger->Break();
    stranger->TellEnd();
  }
}

TEST_F(SessionTest, APingIsAnsweredAtOnce) {
  Open();
  const auto before = pair.near->session->LastHeard();
  pair.clock.Advance(milliseconds(1000));
  pair.near->session->Ping();
  pair.Run();
  EXPECT_GT(pair.near->session->LastHeard(), before);
}

TEST_F(SessionTest, AGapInTheNumbersEndsThePair) {  // O1
  HandPair::Line& line = Open();
  Send("first");
  Send("second");
  line.first->out.erase(line.first->out.begin());
  pair.Run();
  ASSERT_EQ(pair.far->ended.size(), 1u);
  EXPECT_NE(pair.far->ended[0].text.find("near"), std::string::npos);
  ASSERT_EQ(pair.near->dials.size(), 2u);
  pair.Connect(*pair.near);
  pair.Run();
  EXPECT_EQ(pair.near->ended.size(), 1u) << "resumed, it would send the same again";
}

}  // namespace
}  // namespace gradwire::rpc
