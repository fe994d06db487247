// Outbox on a new path: what goes again, and what the other side may not say.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "rpc/outbox.h"
#include "rpc/test_outbox.h"

namespace gradwire::rpc {
namespace {

TEST(Outbox, AResumeGoesOnFromWhatIsTaken) {
  Outbox outbox;
  for (int i = 0; i < 5; ++i) PushRequest(outbox);
  NextOf(outbox);
  outbox.Acked(1);
  outbox.Resume(ToldOf(3));
  EXPECT_EQ(outbox.acked(), 3u);
  EXPECT_EQ(NamesOf(NextOf(outbox)), "4 5");
  EXPECT_EQ(outbox.first_never_sent(), 6u);
  outbox.Resume(ToldOf(5));
  EXPECT_FALSE(outbox.retains());
}

TEST(Outbox, AResumeSendsTheBytesThatAreNotThere) {
  Outbox outbox;
  KeptBulk bulk(5 * kPiece);
  KeptBulk had(kPiece);
  KeptBulk unseen(kPiece);
  PushRequest(outbox, {&had, &bulk});
  NextOf(outbox);
  outbox.Answered(Had(1, 0));
  NextOf(outbox);
  PushRequest(outbox, {&unseen});
  NextOf(outbox);
  outbox.Resume(
      ToldOf(1, {{.message = 1, .ready = true, .present = {RangeOf(0, 0, 1), RangeOf(1, 1, 2), RangeOf(1, 4, 1)}}}));
  EXPECT_FALSE(had.kept());
  EXPECT_EQ(NamesOf(NextOf(outbox)), "2 1:1@0+1 2:0@0+1 1:1@3+1");
  outbox.Answered(Had(1, 1, 0));
  outbox.Answered(Had(1, 1, 3));
  EXPECT_FALSE(bulk.kept());
}

TEST(Outbox, AResumeSaysWhetherThereIsMemory) {
  Outbox outbox;
  KeptBulk bulk(2 * kPiece);
  PushRequest(outbox, {&bulk});
  NextOf(outbox);
  outbox.Resume(ToldOf(1, {{.message = 1, .ready = false, .present = {}}}));
  EXPECT_FALSE(outbox.has_next());
  outbox.Resume(ToldOf(1, {{.message = 1, .ready = true, .present = {}}}));
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1:0@0+1 1:0@1+1") << "what was parked on the old path flows on the new one";
  outbox.Resume(ToldOf(1, {{.message = 1, .ready = false, .present = {RangeOf(0, 1, 1)}}}));
  outbox.Answered(NowAnswer(1));
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1:0@0+1");
}

TEST(Outbox, AfterAResumeAMessageThatIsNotThereIsEagerAgain) {
  Outbox outbox;
  KeptBulk bulk(3 * kPiece);
  PushRequest(outbox, {&bulk});
  NextOf(outbox);
  outbox.Answered(Later(1));
  outbox.Resume(ToldOf(0));
  EXPECT_EQ(NamesOf(NextOf(outbox)), "1 1:0@0+1");
}

TEST(Outbox, WhatAResumeDoesNotListIsComplete) {
  Outbox outbox;
  KeptBulk first(kPiece);
  KeptBulk second(kPiece);
  PushRequest(outbox, {&first});
  PushRequest(outbox, {&second});
  NextOf(outbox);
  Freed freed = outbox.Resume(ToldOf(2, {{.message = 2, .ready = true, .present = {}}}));
  EXPECT_TRUE(freed.has_bulk);
  freed = {};
  EXPECT_FALSE(first.kept());
  EXPECT_TRUE(second.kept());
  EXPECT_EQ(NamesOf(NextOf(outbox)), "2:0@0+1");
}

TEST(Outbox, ResumesThatCannotBeAreRefused) {
  Outbox outbox;
  KeptBulk bulk(4 * kPiece);
  KeptBulk had(kPiece);
  KeptBulk partly(3 * kPiece);
  KeptBulk last(kPiece);
  PushRequest(outbox, {&had});            // 1
  PushRequest(outbox, {&bulk});           // 2: nothing had, one piece sent
  PushRequest(outbox);                    // 3
  PushRequest(outbox, {&partly, &last});  // 4: the first two pieces had
  NextOf(outbox);
  outbox.Answered(Had(1));
  outbox.Answered(Had(4));
  NextOf(outbox);
  outbox.Answered(Had(4, 0, 1));
  PushRequest(outbox);  // 5, not sent
  outbox.Acked(2);
  const auto refused = [&](const wire::ResumeState& told) { return Refused(outbox, [&] { outbox.Resume(told); }); };
  const wire::ResumeState::Arriving right{.message = 4, .ready = true, .present = {RangeOf(0, 0, 2)}};
  const wire::ResumeState::Arriving second{.message = 2, .ready = true, .present = {RangeOf(0, 0, 1)}};
  EXPECT_EQ(refused(ToldOf(1)), "it has taken 1 messages, and acknowledged 2 before");
  EXPECT_EQ(refused(ToldOf(5, {second, right})), "it has taken 5 messages, and 4 were sent");
  EXPECT_EQ(refused(ToldOf(4, {right})), "it has all bytes of message 2, and not all were sent");
  EXPECT_EQ(refused(ToldOf(4, {{.message = 1, .present = {}}, second, right})),
            "it lacks bytes of message 1, which has none that are not had");
  EXPECT_EQ(refused(ToldOf(4, {second, {.message = 3, .present = {}}, right})),
            "it lacks bytes of message 3, which has none that are not had");
  EXPECT_EQ(refused(ToldOf(4, {right, second})), "it has all bytes of message 2, and not all were sent") << "order";
  EXPECT_NE(refused(ToldOf(4, {second, second, right})), "it was allowed") << "twice";
  EXPECT_EQ(refused(ToldOf(3, {second, right})), "it lacks bytes of message 4, which it has not taken");
  EXPECT_EQ(refused(ToldOf(3, {second})), "it lacks bytes of storage 0 of message 4 that it has had before");
  const auto with = [&](std::vector<wire::StorageRange> present) {
    return refused(ToldOf(4, {second, {.message = 4, .ready = true, .present = std::move(present)}}));
  };
  EXPECT_EQ(with({RangeOf(0, 0, 1)}), "it lacks bytes of storage 0 of message 4 that it has had before");
  EXPECT_EQ(with({RangeOf(0, 1, 2)}), "it lacks bytes of storage 0 of message 4 that it has had before");
  EXPECT_EQ(with({RangeOf(0, 0, 4)}), "it has bytes of storage 0 of message 4 that are out of order or outside of it");
  EXPECT_NE(with({RangeOf(0, 0, 2), RangeOf(0, 1, 1)}), "it was allowed") << "overlap";
  EXPECT_NE(with({RangeOf(0, 2, 1), RangeOf(0, 0, 2)}), "it was allowed") << "order";
  EXPECT_NE(with({RangeOf(0, 0, 2), {0, kPiece * 2, 0}}), "it was allowed") << "empty";
  EXPECT_NE(with({RangeOf(0, 0, 2), {0, 8, UINT64_MAX}}), "it was allowed");
  EXPECT_EQ(with({RangeOf(0, 0, 2), RangeOf(2, 0, 1)}),
            "it has bytes of storage 2 of message 4, which is out of order or was not announced");
  EXPECT_EQ(refused(ToldOf(4, {{.message = 2, .ready = true, .present = {RangeOf(0, 0, 2)}}, right})),
            "it has bytes of storage 0 of message 2 that were not sent");
  outbox.Resume(ToldOf(4, {second, right}));
  EXPECT_EQ(NamesOf(NextOf(outbox, 1)), "5");
}

TEST(Outbox, AStorageThatWasLetGoMustBeThereWhole) {
  Outbox outbox;
  KeptBulk first(kPiece / 2);
  KeptBulk second(kPiece / 2);
  PushRequest(outbox, {&first, &second});
  NextOf(outbox);
  outbox.Answered({.message = 1, .verdict = wire::Verdict::kHad, .range = {0, 0, kPiece / 2}});
  EXPECT_FALSE(first.kept());
  EXPECT_EQ(Refused(outbox, [&] { outbox.Resume(ToldOf(1, {{.message = 1, .ready = true, .present = {}}})); }),
            "it lacks bytes of storage 0 of message 1 that it has had before");
  outbox.Resume(ToldOf(1, {{.message = 1, .ready = true, .present = {{0, 0, kPiece / 2}}}}));
  EXPECT_EQ(NextOf(outbox).size(), 1u);
}

}  // namespace
}  // namespace gradwire::rpc
