#include "rpc/inbox.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/error.h"

namespace gradwire::rpc {
namespace {

using wire::BulkPiece;
using wire::BulkTarget;
using wire::PieceAnswer;
using wire::ResumeState;
using wire::StorageRange;
using wire::Verdict;
using Answers = std::vector<PieceAnswer>;

// Memory of a storage that nothing else holds.
struct KeptTarget {
  explicit KeptTarget(size_t size) : bytes(std::make_shared<std::vector<std::byte>>(size)), watch(bytes) {}
  BulkTarget target() { return {.data = bytes->data(), .size = bytes->size(), .keep = std::move(bytes)}; }
  bool kept() const { return !watch.expired(); }
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::weak_ptr<std::vector<std::byte>> watch;
};

BulkTarget Sized(size_t size) { return {.data = nullptr, .size = size, .keep = {}}; }

// An inbox, and which messages have completed.
struct TestInbox {
  void Take(uint64_t number, std::vector<BulkTarget> storages = {}, bool ready = true) {
    inbox.CheckNext(number);
    Run(inbox.Take(number, [this, number] { completed.push_back(number); }, std::move(storages), ready));
  }
  std::byte* Place(BulkPiece piece, uint64_t size) { return inbox.Place(piece, size); }
  void Piece(BulkPiece piece, uint64_t size) { Run(inbox.OnPiece(piece, size)); }
  // The whole of a piece.
  void Bytes(BulkPiece piece, uint64_t size) {
    Place(piece, size);
    Piece(piece, size);
  }
  static void Run(std::optional<Task> task) {
    if (task) (*task)();
  }

  Inbox inbox;
  std::vector<uint64_t> completed;
};

using Numbers = std::vector<uint64_t>;

PieceAnswer Answer(Verdict verdict, const BulkPiece& piece, uint64_t size) {
  return {.message = piece.message_number, .verdict = verdict, .range = {piece.storage, piece.offset, size}};
}
PieceAnswer Had(const BulkPiece& piece, uint64_t size) { return Answer(Verdict::kHad, piece, size); }
PieceAnswer Later(const BulkPiece& piece, uint64_t size) { return Answer(Verdict::kLater, piece, size); }
PieceAnswer NowFor(uint64_t message) { return {.message = message, .verdict = Verdict::kNow, .range = {}}; }

// The text of the Error(kInvalid) that `step` must end in, without a change.
std::string Refused(Inbox& inbox, const std::function<void()>& step) {
  const std::string before = inbox.Encoding();
  try {
    step();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_EQ(inbox.Encoding(), before);
    return error.what();
  }
  return "it was allowed";
}

TEST(Inbox, MessagesAreTakenInTheirOrderAndOnce) {
  TestInbox box;
  box.Take(1);
  EXPECT_EQ(box.completed, (Numbers{1}));
  EXPECT_EQ(box.inbox.taken(), 1u);
  EXPECT_EQ(Refused(box.inbox, [&] { box.inbox.CheckNext(1); }), "it sends message 1 where message 2 comes next");
  EXPECT_EQ(Refused(box.inbox, [&] { box.inbox.CheckNext(3); }), "it sends message 3 where message 2 comes next");
  box.inbox.CheckNext(2);
  EXPECT_EQ(box.inbox.taken(), 1u) << "not before its header step";
  EXPECT_FALSE(box.inbox.arriving());
  EXPECT_FALSE(box.inbox.owes_answers());
}

TEST(Inbox, AMessageIsCompleteOnceAllItsBytesAreInPlace) {
  TestInbox box;
  KeptTarget first(100);
  KeptTarget second(50);
  std::byte* const memory = first.bytes->data();
  box.Take(1, {first.target(), Sized(0), second.target()});
  EXPECT_TRUE(box.inbox.arriving());
  EXPECT_EQ(box.inbox.awaited_bytes(), 150u);
  EXPECT_EQ(box.Place({1, 0, 60}, 40), memory + 60);
  box.Piece({1, 0, 60}, 40);
  box.Bytes({1, 2, 0}, 50);
  EXPECT_EQ(box.inbox.awaited_bytes(), 60u);
  EXPECT_EQ(box.completed, Numbers{});
  box.Bytes({1, 0, 0}, 60);
  EXPECT_EQ(box.completed, (Numbers{1}));
  EXPECT_FALSE(box.inbox.arriving());
  EXPECT_FALSE(first.kept()) << "nothing of it is kept";
  EXPECT_FALSE(box.inbox.owes_at_once());
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Had({1, 0, 60}, 40), Had({1, 2, 0}, 50), Had({1, 0, 0}, 60)}));
  EXPECT_FALSE(box.inbox.owes_answers());
}

TEST(Inbox, MessagesPassOneWhoseBytesAreOnTheirWay) {
  TestInbox box;
  KeptTarget target(10);
  box.Take(1, {target.target()});
  box.Take(2);
  EXPECT_EQ(box.completed, (Numbers{2}));
  box.Bytes({1, 0, 0}, 10);
  EXPECT_EQ(box.completed, (Numbers{2, 1}));
}

TEST(Inbox, BytesWithoutMemoryAreForgottenAndAnsweredLater) {
  TestInbox box;
  KeptTarget target(100);
  box.Take(1, {Sized(100)}, /*ready=*/false);
  EXPECT_EQ(box.Place({1, 0, 0}, 40), nullptr);
  box.Piece({1, 0, 0}, 40);
  EXPECT_TRUE(box.inbox.owes_at_once());
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Later({1, 0, 0}, 40)}));
  EXPECT_FALSE(box.inbox.owes_at_once());
  std::byte* const memory = target.bytes->data();
  box.inbox.Ready(1, {target.target()});
  EXPECT_TRUE(box.inbox.owes_at_once());
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{NowFor(1)}));
  EXPECT_EQ(box.Place({1, 0, 0}, 40), memory) << "they are missing still";
  box.Piece({1, 0, 0}, 40);
  box.Bytes({1, 0, 40}, 60);
  EXPECT_EQ(box.completed, (Numbers{1}));
}

TEST(Inbox, NobodyIsToldOfMemoryWhoWasNotToldToWait) {
  TestInbox box;
  KeptTarget target(100);
  box.Take(1, {Sized(100)}, /*ready=*/false);
  box.inbox.Ready(1, {target.target()});
  EXPECT_FALSE(box.inbox.owes_answers());
  box.Bytes({1, 0, 0}, 100);
  EXPECT_EQ(box.completed, (Numbers{1}));
}

TEST(Inbox, MemoryThatComesWhileAPieceIsReadIsToldAfterIt) {
  TestInbox box;
  KeptTarget target(100);
  box.Take(1, {Sized(100)}, /*ready=*/false);
  EXPECT_EQ(box.Place({1, 0, 0}, 40), nullptr);
  box.inbox.Ready(1, {target.target()});
  box.Piece({1, 0, 0}, 40);
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Later({1, 0, 0}, 40), NowFor(1)}))
      << "the other way round the sender would wait for ever";
  EXPECT_EQ(box.inbox.awaited_bytes(), 100u);
}

TEST(Inbox, MemoryForAMessageThatIsGoneIsIgnored) {
  TestInbox box;
  KeptTarget target(100);
  box.inbox.Ready(7, {target.target()});
  EXPECT_FALSE(target.kept());
}

TEST(Inbox, WhatGetsNoMemoryFailsAloneAndItsBytesCountAsHad) {
  TestInbox box;
  box.Take(1, {Sized(100)}, /*ready=*/false);
  box.Bytes({1, 0, 0}, 40);
  auto complete = box.inbox.Forget(1);
  ASSERT_TRUE(complete);
  (*complete)();
  EXPECT_EQ(box.completed, (Numbers{1}));
  EXPECT_FALSE(box.inbox.Forget(1)) << "once";
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Later({1, 0, 0}, 40), NowFor(1)})) << "its bytes must go on to come";
  EXPECT_EQ(box.Place({1, 0, 0}, 100), nullptr);
  box.Piece({1, 0, 0}, 100);
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Had({1, 0, 0}, 100)}));
  EXPECT_FALSE(box.inbox.arriving());
  EXPECT_EQ(box.completed, (Numbers{1}));
  EXPECT_FALSE(box.inbox.Forget(1));
}

TEST(Inbox, PiecesThatMayNotComeAreRefused) {
  TestInbox box;
  KeptTarget target(100);
  box.Take(1);
  box.Take(2, {target.target()});
  box.Bytes({2, 0, 50}, 10);
  const auto refused = [&](BulkPiece piece, uint64_t size) {
    const std::string text = Refused(box.inbox, [&] { box.inbox.OnPiece(piece, size); });
    EXPECT_EQ(Refused(box.inbox, [&] { box.inbox.Place(piece, size); }), text);
    return text;
  };
  EXPECT_EQ(refused({1, 0, 0}, 1), "it sends bytes for storage 0 of message 1, which awaits none");
  EXPECT_EQ(refused({3, 0, 0}, 1), "it sends bytes for storage 0 of message 3, which awaits none");
  EXPECT_EQ(refused({2, 1, 0}, 1), "it sends bytes for storage 1 of message 2, which was not announced");
  EXPECT_EQ(refused({2, 0, 90}, 11), "it sends bytes for storage 0 of message 2 that are outside of it");
  EXPECT_EQ(refused({2, 0, UINT64_MAX}, 2), "it sends bytes for storage 0 of message 2 that are outside of it");
  EXPECT_EQ(refused({2, 0, 1}, UINT64_MAX), "it sends bytes for storage 0 of message 2 that are outside of it");
  EXPECT_EQ(refused({2, 0, 0}, 0), "it sends bytes for storage 0 of message 2 that are outside of it");
  EXPECT_EQ(refused({2, 0, 50}, 10), "it sends bytes for storage 0 of message 2 that are there already");
  EXPECT_EQ(refused({2, 0, 0}, 100), "it sends bytes for storage 0 of message 2 that are there already");
  EXPECT_EQ(refused({2, 0, 59}, 2), "it sends bytes for storage 0 of message 2 that are there already");
}

TEST(Inbox, AnswersGoInPartsThatFitAFrame) {
  TestInbox box;
  KeptTarget target(3000);
  box.Take(1, {target.target()});
  for (uint64_t i = 0; i < 2500; ++i) box.Bytes({1, 0, i}, 1);
  EXPECT_EQ(box.inbox.TakeAnswers().size(), wire::kMostPieceAnswers);
  const Answers second = box.inbox.TakeAnswers();
  EXPECT_EQ(second.size(), wire::kMostPieceAnswers);
  EXPECT_EQ(second.front(), Had({1, 0, wire::kMostPieceAnswers}, 1));
  EXPECT_EQ(box.inbox.TakeAnswers().size(), 2500 - 2 * wire::kMostPieceAnswers);
  EXPECT_FALSE(box.inbox.owes_answers());
}

// --- A new path.

TEST(Inbox, TellsWhatIsHere) {
  TestInbox box;
  KeptTarget first(100);
  KeptTarget second(50);
  box.Take(1, {first.target()});
  box.Take(2, {Sized(10)}, /*ready=*/false);
  box.Take(3, {second.target(), Sized(7)});
  box.Take(4);
  box.Bytes({1, 0, 0}, 100);
  box.Bytes({3, 0, 40}, 10);
  box.Bytes({3, 0, 0}, 10);
  box.Bytes({3, 0, 10}, 10);
  box.Bytes({3, 1, 2}, 3);
  const ResumeState told = box.inbox.Resume();
  EXPECT_EQ(told, (ResumeState{
                      .taken = 4,
                      .arriving = {{.message = 2, .ready = false, .present = {}},
                                   {.message = 3, .ready = true, .present = {{0, 0, 20}, {0, 40, 10}, {1, 2, 3}}}}}));
  EXPECT_FALSE(box.inbox.owes_answers()) << "answers of the old path are not for the new one";
}

TEST(Inbox, MemoryThatANewPathWasToldToBeMissingIsToldThere) {
  TestInbox box;
  KeptTarget target(10);
  box.Take(1, {Sized(10)}, /*ready=*/false);
  EXPECT_FALSE(box.inbox.Resume().arriving[0].ready);
  box.inbox.Ready(1, {target.target()});  // between Proof and Welcome
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{NowFor(1)}));
}

TEST(Inbox, MemoryThatANewPathKnowsOfIsNotToldAgain) {
  TestInbox box;
  KeptTarget target(10);
  box.Take(1, {Sized(10)}, /*ready=*/false);
  box.Bytes({1, 0, 0}, 5);
  box.inbox.Ready(1, {target.target()});
  EXPECT_TRUE(box.inbox.Resume().arriving[0].ready);
  EXPECT_FALSE(box.inbox.owes_answers());
  EXPECT_FALSE(box.inbox.owes_at_once());
}

TEST(Inbox, APieceThatABreakHasCutIsMissing) {
  TestInbox box;
  KeptTarget target(10);
  box.Take(1, {target.target()});
  EXPECT_NE(box.Place({1, 0, 0}, 10), nullptr);
  EXPECT_EQ(box.inbox.Resume().arriving[0].present, std::vector<StorageRange>{});
  box.Bytes({1, 0, 0}, 10);
  EXPECT_EQ(box.completed, (Numbers{1}));
}

// --- The end.

TEST(Inbox, ALeaverTakesAndAcknowledgesAndCompletesNothing) {
  TestInbox box;
  KeptTarget target(20);
  box.Take(1, {target.target()});
  box.Take(2, {Sized(10)}, /*ready=*/false);
  box.Bytes({2, 0, 0}, 5);
  box.inbox.TakeAnswers();
  EXPECT_EQ(box.inbox.Leave().size(), 2u);
  EXPECT_FALSE(target.kept());
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{NowFor(2)}));
  EXPECT_EQ(box.Place({1, 0, 0}, 20), nullptr);
  box.Piece({1, 0, 0}, 20);
  box.Bytes({2, 0, 0}, 10);
  box.inbox.CheckNext(3);
  EXPECT_FALSE(box.inbox.Take(3, nullptr, {Sized(5)}, /*ready=*/false));
  EXPECT_TRUE(box.inbox.Resume().arriving[0].ready) << "it needs none";
  box.Bytes({3, 0, 0}, 5);
  EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Had({3, 0, 0}, 5)}));
  EXPECT_FALSE(box.inbox.Take(4, nullptr, {}, /*ready=*/true));
  EXPECT_EQ(box.inbox.taken(), 4u);
  EXPECT_FALSE(box.inbox.arriving());
  EXPECT_EQ(box.completed, Numbers{});
  EXPECT_TRUE(box.inbox.Leave().empty());
}

TEST(Inbox, MemoryThatIsBeingReadIntoOutlivesTheEnd) {
  TestInbox box;
  KeptTarget target(20);
  KeptTarget other(20);
  box.Take(1, {target.target()});
  box.Take(2, {other.target()});
  EXPECT_NE(box.Place({1, 0, 0}, 10), nullptr);
  EXPECT_EQ(box.inbox.End().size(), 2u);
  EXPECT_TRUE(target.kept());
  EXPECT_FALSE(other.kept());
  EXPECT_FALSE(box.inbox.OnPiece({1, 0, 0}, 10));
  EXPECT_FALSE(target.kept());
  EXPECT_FALSE(box.inbox.owes_answers());
  EXPECT_EQ(box.Place({1, 0, 10}, 10), nullptr);
  EXPECT_EQ(box.inbox.awaited_bytes(), 0u);
  EXPECT_FALSE(box.inbox.arriving());
}

TEST(Inbox, MemoryThatIsBeingReadIntoOutlivesALeaveAndAFailedMessage) {
  for (const bool leaves : {true, false}) {
    TestInbox box;
    KeptTarget target(20);
    box.Take(1, {target.target()});
    EXPECT_NE(box.Place({1, 0, 0}, 20), nullptr);
    if (leaves) {
      EXPECT_EQ(box.inbox.Leave().size(), 1u);
    } else {
      EXPECT_TRUE(box.inbox.Forget(1));
    }
    EXPECT_TRUE(target.kept());
    box.Piece({1, 0, 0}, 20);
    EXPECT_FALSE(target.kept());
    EXPECT_EQ(box.inbox.TakeAnswers(), (Answers{Had({1, 0, 0}, 20)}));
    EXPECT_EQ(box.completed, Numbers{});
  }
}

TEST(Inbox, NothingIsKeptOnceNoConnectionIsRead) {
  TestInbox box;
  KeptTarget target(20);
  box.Take(1, {target.target()});
  EXPECT_NE(box.Place({1, 0, 0}, 20), nullptr);
  box.inbox.End();
  box.inbox.Drop();
  EXPECT_FALSE(target.kept());
}

}  // namespace
}  // namespace gradwire::rpc
