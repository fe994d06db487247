#include "rpc/outbox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rpc/test_outbox.h"

namespace gradwire::rpc {
namespace {

TEST(Outbox, HeadersGoInOrderAndPiecesAfterThem) {
  Outbox outbox;
  KeptBulk bulk(kPiece);
  EXPECT_FALSE(outbox.has_next());
  EXPECT_EQ(PushRequest(outbox, {&bulk}), 1u);
  EXPECT_EQ(outbox.Push(wire::FrameKind::kReply, RequestOf()), 2u);
  EXPECT_EQ(outbox.last(), 2u);
  EXPECT_TRUE(outbox.has_next());
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1 2 1:0@0+1");
  EXPECT_FALSE(outbox.has_next());
  EXPECT_TRUE(NextOf(outbox).empty());
}

TEST(Outbox, AFrameHoldsTheHeaderOfNowAndSharesTheBody) {
  Outbox outbox;
  const std::string body(1000, 'x');
  outbox.Push(wire::FrameKind::kReply, RequestOf(body));
  const std::vector<transport::OutFrame> frames = NextOf(outbox, kNoBudget, /*taken=*/7);
  ASSERT_EQ(frames.size(), 1u);
  const wire::FrameHeader header = HeaderOf(frames[0]);
  EXPECT_EQ(header.kind, wire::FrameKind::kReply);
  EXPECT_EQ(header.number, 1u);
  EXPECT_EQ(header.acknowledged, 7u);
  EXPECT_EQ(header.body_size, body.size());
  EXPECT_EQ(frames[0].head_size, wire::FrameHeader::kSize);
  EXPECT_EQ(frames[0].size(), wire::FrameHeader::kSize + body.size());
  EXPECT_EQ(frames[0].body, body);
  outbox.Acked(1);
  EXPECT_FALSE(outbox.retains());
  EXPECT_EQ(frames[0].body, body) << "a writer that is late must not read freed memory";
}

TEST(Outbox, AShortBodyStandsInTheHead) {
  Outbox outbox;
  const std::string longest(transport::OutFrame::kHeadBytes - wire::FrameHeader::kSize, 'x');
  outbox.Push(wire::FrameKind::kCancel, RequestOf("12345678"));
  outbox.Push(wire::FrameKind::kLeave, RequestOf(""));
  outbox.Push(wire::FrameKind::kReply, RequestOf(longest));
  const std::vector<transport::OutFrame> frames = NextOf(outbox);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(BodyOf(frames[0]), "12345678");
  EXPECT_EQ(HeaderOf(frames[0]).body_size, 8u);
  EXPECT_EQ(BodyOf(frames[1]), "");
  EXPECT_EQ(BodyOf(frames[2]), longest);
  for (const transport::OutFrame& frame : frames) EXPECT_EQ(frame.body_keep, nullptr);
}

TEST(Outbox, APieceIsWhatTheReceiverReads) {
  Outbox outbox;
  KeptBulk first(100);
  KeptBulk second(kPiece + 5);
  const std::byte* data = second.bytes->data();
  PushRequest(outbox, {&first, &second});
  NextOf(outbox);
  outbox.Answered({.message = 1, .verdict = wire::Verdict::kHad, .range = {0, 0, 100}});
  const std::vector<transport::OutFrame> frames = NextOf(outbox, kNoBudget, /*taken=*/3);
  ASSERT_FALSE(frames.empty());
  const transport::OutFrame& frame = frames.back();
  const wire::BulkPiece piece = wire::DecodeBulkPiece(BodyOf(frame));
  EXPECT_EQ(wire::Encode(piece), BodyOf(frame));
  EXPECT_EQ(piece.message_number, 1u);
  EXPECT_EQ(piece.storage, 1u);
  EXPECT_EQ(piece.offset + frame.bulk.size, kPiece + 5);
  EXPECT_EQ(frame.bulk.data, data + piece.offset);
  EXPECT_EQ(HeaderOf(frame).acknowledged, 3u);
  EXPECT_EQ(HeaderOf(frame).number, 0u);
  EXPECT_EQ(HeaderOf(frame).bulk_size, frame.bulk.size);
}

TEST(Outbox, ABatchIsAboutTheBudgetAndNeverEmptyWhileThereIsAFrame) {
  Outbox outbox;
  for (int i = 0; i < 4; ++i) outbox.Push(wire::FrameKind::kRequest, RequestOf(std::string(968, 'x')));
  EXPECT_EQ(NamesOf(NextOf(outbox, 1)), "1");
  EXPECT_EQ(NamesOf(NextOf(outbox, 0)), "2");
  EXPECT_EQ(NamesOf(NextOf(outbox, 1001)), "3 4");
}

TEST(Outbox, UntilTheFirstAnswerOnlyALittleOfAMessageGoes) {
  Outbox outbox;
  KeptBulk bulk(5 * kPiece);
  KeptBulk other(kPiece / 4);
  PushRequest(outbox, {&other, &bulk});
  const std::vector<transport::OutFrame> frames = NextOf(outbox);
  size_t bytes = 0;
  for (const transport::OutFrame& frame : frames) bytes += frame.bulk.size;
  EXPECT_EQ(bytes, Outbox::kEagerBytes);
  EXPECT_FALSE(outbox.has_next());
  outbox.Answered({.message = 1, .verdict = wire::Verdict::kHad, .range = {0, 0, kPiece / 4}});
  EXPECT_TRUE(outbox.has_next()) << "had: the rest flows";
  EXPECT_EQ(NextOf(outbox).size(), 5u);
}

TEST(Outbox, PiecesOfSeveralMessagesTakeTurnsAndHeadersPassThem) {
  Outbox outbox;
  KeptBulk huge(6 * kPiece);
  KeptBulk small(2 * kPiece);
  PushRequest(outbox, {&huge});
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1 1:0@0+1");
  outbox.Answered(Had(1));
  EXPECT_EQ(NamesOf(NextOf(outbox, 1)), "1:0@1+1");
  PushRequest(outbox, {&small});
  EXPECT_EQ(NamesOf(NextOf(outbox, 3 * kPiece)), "2 1:0@2+1 2:0@0+1 1:0@3+1");
  outbox.Answered(Had(2));
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1:0@4+1 2:0@1+1 1:0@5+1");
}

TEST(Outbox, AcknowledgedBodiesAreLetGoAndBulkIsNot) {
  Outbox outbox;
  KeptBulk bulk(2 * kPiece);
  PushRequest(outbox, {&bulk});
  outbox.Push(wire::FrameKind::kReply, RequestOf(std::string(1 << 20, 'x')));
  NextOf(outbox);
  EXPECT_TRUE(outbox.Acked(0).shares.empty());
  EXPECT_TRUE(outbox.Acked(1).shares.empty()) << "a small body is nobody's value";
  EXPECT_EQ(outbox.acked(), 1u);
  const Freed freed = outbox.Acked(2);
  EXPECT_EQ(freed.shares.size(), 1u) << "to free a large one takes a while";
  EXPECT_FALSE(freed.has_bulk);
  EXPECT_TRUE(bulk.kept());
  EXPECT_EQ(outbox.retained_bytes(), 2 * kPiece);
  EXPECT_TRUE(outbox.retains());
}

TEST(Outbox, AStorageIsLetGoOnceAllOfItIsHad) {
  Outbox outbox;
  KeptBulk first(kPiece);
  KeptBulk second(kPiece);
  PushRequest(outbox, {&first, &second});
  NextOf(outbox);
  Freed freed = outbox.Answered(Had(1, 0));
  EXPECT_TRUE(freed.has_bulk);
  EXPECT_EQ(freed.shares.size(), 1u);
  EXPECT_TRUE(first.kept()) << "it is returned, not destroyed here";
  freed = {};
  EXPECT_FALSE(first.kept());
  EXPECT_TRUE(second.kept());
  NextOf(outbox);
  outbox.Acked(1);
  EXPECT_TRUE(outbox.retains());
  outbox.Answered(Had(1, 1));
  EXPECT_FALSE(second.kept());
  EXPECT_FALSE(outbox.retains());
  EXPECT_EQ(outbox.retained_bytes(), 0u);
}

TEST(Outbox, AFrameThatIsBeingWrittenKeepsItsBulk) {
  Outbox outbox;
  KeptBulk bulk(kPiece);
  PushRequest(outbox, {&bulk});
  std::vector<transport::OutFrame> frames = NextOf(outbox);
  outbox.Answered(Had(1));
  EXPECT_TRUE(bulk.kept());
  frames.clear();
  EXPECT_FALSE(bulk.kept());
}

TEST(Outbox, WhatHadNoMemoryWaitsUntilThereIsSome) {
  Outbox outbox;
  KeptBulk bulk(3 * kPiece);
  PushRequest(outbox, {&bulk});
  NextOf(outbox);
  outbox.Answered(Later(1));
  EXPECT_FALSE(outbox.has_next());
  outbox.Answered(NowAnswer(1));
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1:0@0+1 1:0@1+1 1:0@2+1");
  EXPECT_FALSE(outbox.has_next());
  outbox.Answered(Had(1, 0, 0, 3));
  EXPECT_FALSE(bulk.kept());
}

TEST(Outbox, AParkedMessageGivesItsTurnAway) {
  Outbox outbox;
  KeptBulk parked(4 * kPiece);
  KeptBulk other(kPiece);
  PushRequest(outbox, {&parked});
  NextOf(outbox);
  outbox.Answered(Had(1));
  NextOf(outbox, 1);  // the second piece; the third one has its turn
  outbox.Answered(Later(1, 0, 1));
  EXPECT_FALSE(outbox.has_next());
  PushRequest(outbox, {&other});
  EXPECT_EQ(NamesOf(NextOf(outbox)), "2 2:0@0+1");
}

TEST(Outbox, AnswersThatCannotBeAreRefused) {
  Outbox outbox;
  KeptBulk bulk(3 * kPiece);
  KeptBulk unsent(kPiece);
  PushRequest(outbox, {&bulk});
  PushRequest(outbox);
  NextOf(outbox);
  PushRequest(outbox, {&unsent});
  const auto refused = [&](const wire::PieceAnswer& answer) {
    return Refused(outbox, [&] { outbox.Answered(answer); });
  };
  EXPECT_EQ(refused(Had(2)), "it answers for bytes of message 2, of which none are on their way");
  EXPECT_EQ(refused(Had(3)), "it answers for bytes of message 3, of which none are on their way") << "not handed out";
  EXPECT_EQ(refused(NowAnswer(7)), "it answers for bytes of message 7, of which none are on their way");
  EXPECT_EQ(refused(Had(1, 0, 1)),
            "it answers for bytes of message 1, storage 0, 1048576 from byte 1048576 on, which "
            "are not on their way");
  EXPECT_NE(refused(Had(1, 1)), "it was allowed") << "no such storage";
  EXPECT_NE(refused(Later(1, 0, 2)), "it was allowed");
  EXPECT_NE(refused({.message = 1, .verdict = wire::Verdict::kHad, .range = {0, 0, 0}}), "it was allowed");
  EXPECT_NE(refused({.message = 1, .verdict = wire::Verdict::kHad, .range = {0, 8, UINT64_MAX}}), "it was allowed");
  EXPECT_NE(refused({.message = 1, .verdict = wire::Verdict{9}, .range = {0, 0, 1}}), "it was allowed");
  EXPECT_EQ(refused(NowAnswer(1)), "it answers for bytes of message 1, which did not wait for memory");
  outbox.Answered(Had(1));
  EXPECT_NE(refused(Had(1)), "it was allowed") << "twice";
  EXPECT_NE(refused(Later(1)), "it was allowed") << "twice";
}

TEST(Outbox, AcknowledgementsThatCannotBeAreRefused) {
  Outbox outbox;
  for (int i = 0; i < 6; ++i) PushRequest(outbox);
  NextOf(outbox, 1);
  NextOf(outbox, 1);
  outbox.Acked(2);
  EXPECT_EQ(Refused(outbox, [&] { outbox.Acked(3); }), "it acknowledges message 3, and 2 were sent");
  EXPECT_EQ(Refused(outbox, [&] { outbox.Acked(1); }), "it acknowledges message 1 after message 2");
}

TEST(Outbox, ManyMessagesWaitInTheirOrder) {
  Outbox outbox;
  uint64_t pushed = 0;
  uint64_t sent = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 37 + round % 7; ++i) outbox.Push(wire::FrameKind::kReply, RequestOf(std::to_string(++pushed)));
    for (const transport::OutFrame& frame : NextOf(outbox, 30 * 40)) {
      EXPECT_EQ(HeaderOf(frame).number, ++sent);
      EXPECT_EQ(BodyOf(frame), std::to_string(sent));
    }
    outbox.Acked(sent - sent % 5);
  }
  while (outbox.has_next()) sent += NextOf(outbox).size();
  EXPECT_EQ(sent, pushed);
  outbox.Acked(sent);
  EXPECT_EQ(outbox.retained_bytes(), 0u);
}

// --- The end.

TEST(Outbox, TheEndGivesEverythingUpAndKnowsWhatWasNeverSent) {
  Outbox outbox;
  KeptBulk bulk(2 * kPiece);
  KeptBulk unsent(kPiece);
  PushRequest(outbox, {&bulk});
  NextOf(outbox);
  PushRequest(outbox, {&unsent});
  outbox.Acked(1);
  Freed freed = outbox.End();
  EXPECT_TRUE(freed.has_bulk);
  EXPECT_EQ(freed.shares.size(), 2u);
  EXPECT_TRUE(bulk.kept());
  freed = {};
  EXPECT_FALSE(bulk.kept());
  EXPECT_FALSE(unsent.kept());
  EXPECT_FALSE(outbox.retains());
  EXPECT_EQ(outbox.retained_bytes(), 0u);
  EXPECT_FALSE(outbox.has_next());
  EXPECT_TRUE(NextOf(outbox).empty());
  EXPECT_EQ(outbox.first_never_sent(), 2u);
}

TEST(Outbox, WhatComesAfterTheEndIsNobodys) {
  Outbox outbox;
  KeptBulk bulk(2 * kPiece);
  PushRequest(outbox, {&bulk});
  NextOf(outbox);
  outbox.End();
  EXPECT_TRUE(outbox.Acked(1).shares.empty());
  EXPECT_TRUE(outbox.Answered(Had(1)).shares.empty());
  EXPECT_TRUE(outbox.Resume(ToldOf(1)).shares.empty());
  EXPECT_FALSE(outbox.has_next());
}

}  // namespace
}  // namespace gradwire::rpc
