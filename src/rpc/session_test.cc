#include "rpc/session.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <utility>
#include <vector>

namespace gradwire::rpc {
namespace {

using transport::Lane;
using transport::OutFrame;

// Keeps what is queued; delivers it by hand.
class FakeConnection : public transport::Connection {
 public:
  void Start(std::shared_ptr<transport::Receiver>) override {}
  void Queue(OutFrame frame, Lane lane) override {
    (lane == Lane::kHeaders ? headers : bulk).push_back(std::move(frame));
  }
  void Flush() override { ++flushes; }
  void Close(Failure reason) override { closed.push_back(std::move(reason)); }
  void SetBodyLimit(uint32_t) override {}
  std::string description() const override { return "fake"; }

  std::vector<OutFrame> headers, bulk;
  std::vector<Failure> closed;
  int flushes = 0;
};

class FakeHost : public SessionHost {
 public:
  void Connect(const std::shared_ptr<Session>&) override { ++connects; }
  Task OnRequest(const std::shared_ptr<Session>&, wire::Request request) override {
    header_steps.push_back(request.function);
    return [this, request = std::move(request)]() mutable { complete.push_back(std::move(request)); };
  }
  Task OnReply(const std::shared_ptr<Session>&, wire::Reply) override {
    return [] {};
  }
  void OnCancel(const std::shared_ptr<Session>&, const wire::Cancel&) override {}
  void OnEnded(const std::shared_ptr<Session>&, const Failure& reason) override { ended.push_back(reason); }
  void Admit(std::vector<Task> sends) override { admitted += sends.size(); }
  void Discard(std::vector<Task> tasks) override { discarded += tasks.size(); }
  size_t max_bulk_bytes() const override { return 1 << 30; }

  int connects = 0;
  size_t discarded = 0, admitted = 0;
  std::vector<std::string> header_steps;
  std::vector<wire::Request> complete;
  std::vector<Failure> ended;
};

const Peer kPeer{.id = {1, 5}, .name = "peer"};

wire::EncodedMessage Message(const std::string& function, size_t floats = 0) {
  wire::Request request;
  request.call_id = 1;
  request.function = function;
  if (floats > 0) request.args.tensors.push_back(at::full({static_cast<int64_t>(floats)}, 2.5));
  wire::EncodedMessage message = wire::Encode(request);
  wire::AppendTail(request, message);
  return message;
}

void Deliver(const OutFrame& frame, Session& to) {
  const wire::FrameHeader header = wire::DecodeHeader(frame.bytes.data());
  const std::string body = frame.bytes.substr(wire::FrameHeader::kSize);
  ASSERT_EQ(header.body_size, body.size());
  if (header.bulk_size > 0) {
    std::byte* target = to.BulkTarget(header, body);
    std::copy(frame.bulk.data, frame.bulk.data + frame.bulk.size, target);
  }
  to.OnFrame(header, body);
}

class SessionTest : public testing::Test {
 protected:
  std::shared_ptr<FakeHost> near_host = std::make_shared<FakeHost>(), far_host = std::make_shared<FakeHost>();
  std::shared_ptr<Session> near = std::make_shared<Session>(near_host, kPeer);
  std::shared_ptr<Session> far = std::make_shared<Session>(far_host, kPeer);
  std::shared_ptr<FakeConnection> line = std::make_shared<FakeConnection>();
};

TEST_F(SessionTest, ConnectsOnFirstUseAndSendsWhatWaitedInOrder) {  // O1
  EXPECT_EQ(near_host->connects, 0);
  EXPECT_FALSE(near->Enqueue(wire::FrameKind::kRequest, Message("first")));
  EXPECT_FALSE(near->Enqueue(wire::FrameKind::kRequest, Message("second")));
  EXPECT_EQ(near_host->connects, 1);
  near->Attach(line);
  EXPECT_FALSE(near->Enqueue(wire::FrameKind::kRequest, Message("third")));
  far->Attach(std::make_shared<FakeConnection>());
  for (const OutFrame& frame : line->headers) Deliver(frame, *far);
  EXPECT_EQ(far_host->header_steps, (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_EQ(far_host->complete.size(), 3u);
}

TEST_F(SessionTest, TheHeaderStepOfALargeMessageDoesNotWaitForItsBytes) {  // O1
  near->Attach(line);
  const size_t floats = 600'000;  // more than two pieces
  near->Enqueue(wire::FrameKind::kRequest, Message("large", floats));
  near->Enqueue(wire::FrameKind::kRequest, Message("small"));
  ASSERT_EQ(line->headers.size(), 2u);
  ASSERT_EQ(line->bulk.size(), 3u);
  far->Attach(std::make_shared<FakeConnection>());
  for (const OutFrame& frame : line->headers) Deliver(frame, *far);
  EXPECT_EQ(far_host->header_steps, (std::vector<std::string>{"large", "small"}));
  ASSERT_EQ(far_host->complete.size(), 1u) << "the small one is complete before the large one";
  for (const OutFrame& frame : line->bulk) Deliver(frame, *far);
  ASSERT_EQ(far_host->complete.size(), 2u);
  EXPECT_TRUE(far_host->complete[1].args.tensors[0].equal(at::full({static_cast<int64_t>(floats)}, 2.5)));
}

TEST_F(SessionTest, AGapOrARepetitionInTheNumbersIsRefused) {  // O1
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("first"));
  near->Enqueue(wire::FrameKind::kRequest, Message("second"));
  EXPECT_THROW(Deliver(line->headers[1], *far), Error);
  Deliver(line->headers[0], *far);
  EXPECT_THROW(Deliver(line->headers[0], *far), Error);
}

TEST_F(SessionTest, BytesThatNobodyAnnouncedAreRefused) {
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("large", 600'000));
  EXPECT_THROW(Deliver(line->bulk[0], *far), Error) << "before the header";
  Deliver(line->headers[0], *far);
  EXPECT_THROW(Deliver(line->bulk[1], *far), Error) << "a gap";
  Deliver(line->bulk[0], *far);
  EXPECT_THROW(Deliver(line->bulk[0], *far), Error) << "a repetition";
}

TEST_F(SessionTest, APieceWithoutBytesIsRefused) {
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("large", 600'000));
  Deliver(line->headers[0], *far);
  const uint64_t number = wire::DecodeHeader(line->headers[0].bytes.data()).number;
  for (const uint32_t storage : {0u, 0xFFFFFFFFu}) {
    const std::string body = wire::Encode({.message_number = number, .storage = storage, .offset = 0});
    EXPECT_THROW(far->OnFrame({.kind = wire::FrameKind::kBulk, .body_size = static_cast<uint32_t>(body.size())}, body),
                 Error);
  }
}

TEST_F(SessionTest, MessagesComeOverOneConnection) {  // O1
  far->SetIncoming(line);
  EXPECT_THROW(far->SetIncoming(std::make_shared<FakeConnection>()), Error);
}

TEST_F(SessionTest, AnAttemptThatFailsEndsNoSessionThatWorks) {
  const Failure why{.code = ErrorCode::kUnreachable, .text = "refused"};
  near->Enqueue(wire::FrameKind::kRequest, Message("first"));
  near->Attach(line);  // the peer has connected meanwhile
  near->ConnectFailed(why);
  EXPECT_FALSE(near->ended_because());
  far->Enqueue(wire::FrameKind::kRequest, Message("first"));
  far->ConnectFailed(why);
  EXPECT_TRUE(far->ended_because());
}

TEST_F(SessionTest, AnAcknowledgementOfWhatWasNotSentIsRefused) {
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("first"));
  wire::FrameHeader header = wire::DecodeHeader(line->headers[0].bytes.data());
  header.acknowledged = 1;
  EXPECT_THROW(far->OnFrame(header, line->headers[0].bytes.substr(wire::FrameHeader::kSize)), Error);
}

TEST_F(SessionTest, AnEndedSessionRefusesAndClosesAndTellsOnce) {  // C1
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("first"));
  const Failure reason{.code = ErrorCode::kDisconnected, .text = "the line broke"};
  near->End(reason, /*announce=*/true);
  near->End({.code = ErrorCode::kDisconnected, .text = "again"});
  ASSERT_EQ(near_host->ended.size(), 1u);
  EXPECT_EQ(near_host->ended[0].text, "the line broke");
  EXPECT_EQ(line->closed.size(), 1u);
  EXPECT_EQ(wire::DecodeHeader(line->headers.back().bytes.data()).kind, wire::FrameKind::kLeave);
  const auto refused = near->Enqueue(wire::FrameKind::kRequest, Message("late"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->text, "the line broke");
}

TEST_F(SessionTest, WhatIsArrivingIsKeptUntilItsConnectionHasClosed) {
  near->Attach(line);
  near->Enqueue(wire::FrameKind::kRequest, Message("large", 600'000));
  far->Attach(std::make_shared<FakeConnection>());
  Deliver(line->headers[0], *far);
  far->End({.code = ErrorCode::kDisconnected, .text = "stopped"});
  EXPECT_EQ(far_host->discarded, 0u) << "a transport may be writing into its memory";
  far->OnConnectionClosed({.code = ErrorCode::kDisconnected, .text = "stopped"});
  EXPECT_EQ(far_host->discarded, 1u);
  EXPECT_TRUE(far_host->complete.empty());
}

TEST_F(SessionTest, SendsOnOneConnectionWhenBothSidesConnectAtOnce) {  // O1
  const auto second = std::make_shared<FakeConnection>();
  near->Enqueue(wire::FrameKind::kRequest, Message("first"));
  near->Attach(line);
  near->Attach(second);
  near->Enqueue(wire::FrameKind::kRequest, Message("second"));
  EXPECT_EQ(line->headers.size(), 2u);
  EXPECT_TRUE(second->headers.empty());
}

}  // namespace
}  // namespace gradwire::rpc
