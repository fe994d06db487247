// Messages of a group: what is written is read again, and bad bytes are refused.
#include "wire/group.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "gradwire/error.h"

namespace gradwire::wire {
namespace {

constexpr WorkerId kA{0, 7}, kB{1, 8}, kC{2, 9};

std::vector<GroupMessage> OneOfEachKind() {
  const Ballot ballot{3, 2, kB};
  const Change change{{kA}, {kC}};
  return {GroupReport{3, {kA, kC}, {{kC, {kB}}}},
          GroupAsk{ballot, {kA, kB}, {kA}},
          GroupVote{ballot, AcceptedChange{ballot, change}, {kA}, {kC}},
          GroupVote{ballot, std::nullopt, {}, {}},
          GroupNack{ballot},
          GroupPropose{ballot, {kA, kB}, change},
          GroupAccept{ballot},
          GroupView{4, {kB, kC}},
          GroupCut{ballot, {kB}, {kA}},
          GroupTaken{}};
}

TEST(GroupMessages, AreReadAsTheyWereWritten) {
  for (const GroupMessage& message : OneOfEachKind()) EXPECT_EQ(DecodeGroupMessage(Encode(message)), message);
}

TEST(GroupMessages, CutShortOrLongerThanTheyAreAreRefused) {
  for (const GroupMessage& message : OneOfEachKind()) {
    const std::string bytes = Encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(DecodeGroupMessage(bytes.substr(0, size)), Error) << message.index() << " at " << size;
    }
    EXPECT_THROW(DecodeGroupMessage(bytes + '\0'), Error);
  }
}

TEST(GroupMessages, AnUnknownKindASetOutOfOrderAndACountThatCannotFollowAreRefused) {
  EXPECT_THROW(DecodeGroupMessage(std::string(1, '\x63')), Error);
  const std::string view = Encode(GroupView{4, {kA, kB}});
  std::string twice = view;
  twice.replace(1 + 8 + 4 + 8, 8, view.substr(1 + 8 + 4, 8));  // the first member again as the second
  EXPECT_THROW(DecodeGroupMessage(twice), Error);
  std::string large = view;
  large.replace(1 + 8, 4, "\xff\xff\xff\xff");
  EXPECT_THROW(DecodeGroupMessage(large), Error);
}

TEST(GroupMessages, LettersBringBeatsAndReasons) {
  const GroupLetter beat{GroupBeat{3, 7, true}, {}};
  EXPECT_EQ(DecodeGroupLetter(Encode(beat)), beat);
  const GroupLetter view{GroupMessage(GroupView{4, {kA}}), {{kB, "silent for 11.2 s"}}};
  EXPECT_EQ(DecodeGroupLetter(Encode(view)), view);
  for (const std::string& bytes : {Encode(beat), Encode(view)}) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(DecodeGroupLetter(bytes.substr(0, size)), Error) << size;
    }
    EXPECT_THROW(DecodeGroupLetter(bytes + '\0'), Error);
  }
}

TEST(GroupMessages, ChangedBytesGiveAMessageOrAnError) {
  std::mt19937 random(1);
  for (const GroupMessage& message : OneOfEachKind()) {
    for (int i = 0; i < 2'000; ++i) {
      std::string bytes = Encode(message);
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      try {
        EXPECT_EQ(Encode(DecodeGroupMessage(bytes)), bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::wire
