// Which connection of a pair is the path (O3): each row of the table, each event where it means nothing.
#include "rpc/paths.h"

#include <gtest/gtest.h>

#include <string>

namespace gradwire::rpc {
namespace {

using wire::RefuseCode;
using State = Paths::State;

constexpr WorkerId kLow{1, 7}, kHigh{2, 3};  // at equal numbers kLow wins

struct ToText {
  std::string operator()(const Paths::Dial&) { return "dial"; }
  std::string operator()(const Paths::DropDial&) { return "drop dial"; }
  std::string operator()(const Paths::Prove& prove) {
    return "prove " + std::to_string(prove.link) + " number " + std::to_string(prove.number);
  }
  std::string operator()(const Paths::Adopt& adopt) {
    return std::string(adopt.accepted ? "welcome " : "adopt ") + std::to_string(adopt.link) + " taken " +
           std::to_string(adopt.told.taken);
  }
  std::string operator()(const Paths::Refuse& refuse) {
    return "refuse " + std::to_string(refuse.link) + " code " + std::to_string(static_cast<int>(refuse.code)) +
           " number " + std::to_string(refuse.number);
  }
  std::string operator()(const Paths::Abort& abort) { return "abort " + std::to_string(abort.link); }
  std::string operator()(const Paths::AwaitRetry& pause) {
    return pause.pause == Paths::Pause::kRetry ? "pause " + std::to_string(pause.failures) : "short pause";
  }
  std::string operator()(const Paths::PathLost&) { return "lost"; }
  std::string operator()(const Paths::Refused&) { return "refused"; }
};

std::string Text(const Paths::Actions& actions) {
  std::string text;
  for (const Paths::Action& action : actions) text += (text.empty() ? "" : ", ") + std::visit(ToText(), action);
  return text;
}

wire::ResumeState Told(uint64_t taken) { return {.taken = taken}; }

// Of kLow unless the test says else, with the steps that lead to each state.
struct PathsTest : testing::Test {
  Paths paths{kLow, kHigh, true};

  void Connect(Paths::LinkId link) {  // kConnecting
    ASSERT_EQ(Text(paths.OnWanted()), "dial");
    ASSERT_EQ(Text(paths.OnDialed(link)), "");
    ASSERT_EQ(paths.state(), State::kConnecting);
  }
  void ProveOn(Paths::LinkId link) {  // kProved, number 1
    Connect(link);
    ASSERT_EQ(Text(paths.OnChallenge(link)), "prove " + std::to_string(link) + " number 1");
    ASSERT_EQ(paths.state(), State::kProved);
  }
  void OpenOwn(Paths::LinkId link) {  // kOpen, number 1, made here
    ProveOn(link);
    ASSERT_EQ(Text(paths.OnWelcome(link, Told(0))), "adopt " + std::to_string(link) + " taken 0");
    ASSERT_EQ(paths.state(), State::kOpen);
    ASSERT_EQ(Text(paths.OnFirstFrame(link)), "");
  }
  void OpenAccepted(Paths::LinkId link, uint64_t number = 1) {  // kOpen, made by the other side
    ASSERT_EQ(Text(paths.OnProof(link, number, Told(0))), "welcome " + std::to_string(link) + " taken 0");
    ASSERT_EQ(paths.state(), State::kOpen);
    paths.OnFirstFrame(link);
  }
};

TEST_F(PathsTest, KeysRankByNumberThenTheLowerWorkerWins) {
  using Key = Paths::Key;
  EXPECT_LT((Key{1, kLow}), (Key{2, kHigh}));
  EXPECT_LT((Key{1, kHigh}), (Key{1, kLow}));
  EXPECT_LT((Key{}), (Key{1, kHigh}));
  EXPECT_EQ((Key{1, kLow}), (Key{1, kLow}));
}

// --- Connecting.

TEST_F(PathsTest, AMessageThatIsQueuedDials) {
  EXPECT_EQ(paths.state(), State::kIdle);
  EXPECT_FALSE(paths.ever_open());
  OpenOwn(5);
  EXPECT_EQ(paths.path(), 5u);
  EXPECT_TRUE(paths.ever_open());
  EXPECT_EQ(Text(paths.OnWanted()), "");
}

TEST_F(PathsTest, OneDialIsEnough) {
  EXPECT_EQ(Text(paths.OnWanted()), "dial");
  EXPECT_EQ(Text(paths.OnWanted()), "");
  paths.OnDialed(5);
  EXPECT_EQ(Text(paths.OnWanted()), "");
  paths.OnChallenge(5);
  EXPECT_EQ(Text(paths.OnWanted()), "");
  paths.OnClosed(5);
  EXPECT_EQ(Text(paths.OnWanted()), "");  // after the pause
}

TEST_F(PathsTest, AFailedDialIsTriedAgainAfterALongerPause) {
  paths.OnWanted();
  EXPECT_EQ(Text(paths.OnDialFailed(false)), "pause 1");
  paths.OnFirstFrame(0);
  EXPECT_EQ(Text(paths.OnRetry()), "dial");
  EXPECT_EQ(Text(paths.OnDialFailed(false)), "pause 2");
  EXPECT_EQ(paths.state(), State::kBroken);
  EXPECT_EQ(Text(paths.OnRetry()), "dial");
  paths.OnDialed(5);
  paths.OnChallenge(5);
  paths.OnWelcome(5, Told(0));
  EXPECT_EQ(Text(paths.OnClosed(5)), "lost, pause 3");  // a path that brought nothing is a failure too
  paths.OnRetry();
  paths.OnDialed(6);
  paths.OnChallenge(6);
  paths.OnWelcome(6, Told(0));
  paths.OnFirstFrame(6);  // forgets the failures
  EXPECT_EQ(Text(paths.OnClosed(6)), "lost, dial");
  EXPECT_EQ(Text(paths.OnDialFailed(false)), "pause 1");
}

TEST_F(PathsTest, AnAttemptThatEndsIsTriedAgainWithAHigherNumber) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnClosed(5)), "pause 1");
  EXPECT_EQ(Text(paths.OnRetry()), "dial");
  paths.OnDialed(6);
  EXPECT_EQ(Text(paths.OnClosed(6)), "pause 2");  // before its Challenge: no number is used
  paths.OnRetry();
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "prove 7 number 2");
}

TEST_F(PathsTest, AStaleAttemptOnlyWaitsAndGoesAboveWhatIsKnown) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnRefused(5, RefuseCode::kStale, 8)), "abort 5, pause 1");
  EXPECT_EQ(paths.state(), State::kBroken);
  paths.OnRetry();
  paths.OnDialed(6);
  EXPECT_EQ(Text(paths.OnChallenge(6)), "prove 6 number 9");
  EXPECT_EQ(Text(paths.OnRefused(6, RefuseCode::kStale, 3)), "abort 6, pause 2");  // less than what is known here
  paths.OnRetry();
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "prove 7 number 10");
}

TEST_F(PathsTest, WhoIsNoMemberYetTriesAgain) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnRefused(5, RefuseCode::kNoMember, 0)), "abort 5, pause 1");
}

TEST_F(PathsTest, SomebodyElseAtAnAddressIsPassedOver) {
  Connect(5);
  EXPECT_EQ(Text(paths.OnRefused(5, RefuseCode::kOtherWorker, 0)), "abort 5");
  EXPECT_EQ(Text(paths.OnClosed(5)), "");  // the dial goes on
  EXPECT_EQ(Text(paths.OnDialed(6)), "");
  EXPECT_EQ(Text(paths.OnRefused(6, RefuseCode::kVersion, 0)), "abort 6");
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "prove 7 number 1");
  EXPECT_EQ(Text(paths.OnRefused(7, RefuseCode::kKey, 0)), "abort 7");
  EXPECT_EQ(Text(paths.OnDialFailed(true)), "refused");
  EXPECT_EQ(paths.state(), State::kEnded);
}

TEST_F(PathsTest, WhoIsRefusedEverywhereIsLostAtOnce) {
  OpenOwn(5);
  EXPECT_EQ(Text(paths.OnClosed(5)), "lost, dial");
  EXPECT_EQ(Text(paths.OnDialFailed(true)), "refused");
  EXPECT_EQ(paths.state(), State::kEnded);
  EXPECT_EQ(Text(paths.OnProof(6, 9, Told(0))), "refuse 6 code 6 number 0");
}

TEST_F(PathsTest, APeerWithoutAddressesIsWaitedFor) {
  paths.SetCanDial(false);
  EXPECT_EQ(Text(paths.OnWanted()), "");
  EXPECT_EQ(paths.state(), State::kIdle);
  OpenAccepted(5);
  EXPECT_EQ(Text(paths.OnClosed(5)), "lost, short pause");
  EXPECT_EQ(Text(paths.OnRetry()), "");  // nowhere to dial
  EXPECT_EQ(Text(paths.OnWanted()), "");
  OpenAccepted(6, 2);
  paths.OnClosed(6);
  paths.OnRetry();
  paths.SetCanDial(true);
  EXPECT_EQ(Text(paths.OnWanted()), "dial");
}

TEST_F(PathsTest, WhoCannotDialAnyMoreWaitsAfterAnOwnPath) {
  OpenOwn(5);
  paths.SetCanDial(false);
  EXPECT_EQ(Text(paths.OnClosed(5)), "lost, short pause");
  EXPECT_EQ(Text(paths.OnRetry()), "");
  EXPECT_EQ(paths.state(), State::kIdle);
}

// --- Being connected to.

TEST_F(PathsTest, AProofOpens) {
  EXPECT_EQ(Text(paths.OnProof(5, 3, Told(17))), "welcome 5 taken 17");
  EXPECT_EQ(paths.state(), State::kOpen);
  EXPECT_EQ(paths.path(), 5u);
  EXPECT_TRUE(paths.ever_open());
}

TEST_F(PathsTest, AProofTakesThePlaceOfTheOwnDial) {
  paths.OnWanted();
  EXPECT_EQ(Text(paths.OnProof(5, 1, Told(0))), "drop dial, welcome 5 taken 0");
  EXPECT_EQ(Text(paths.OnDialed(6)), "abort 6");  // who drops a dial need not tell; it would do no harm
  EXPECT_EQ(Text(paths.OnDialFailed(true)), "");
  EXPECT_EQ(paths.path(), 5u);
}

TEST_F(PathsTest, AProofTakesThePlaceOfTheOwnConnection) {
  Connect(5);
  EXPECT_EQ(Text(paths.OnProof(6, 1, Told(0))), "abort 5, welcome 6 taken 0");
  EXPECT_EQ(Text(paths.OnChallenge(5)), "");
  EXPECT_EQ(Text(paths.OnClosed(5)), "");
  EXPECT_EQ(paths.path(), 6u);
}

TEST_F(PathsTest, OfTwoThatConnectAtOnceTheLowerWorkerWins) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnProof(6, 1, Told(0))), "refuse 6 code 1 number 1");
  EXPECT_EQ(Text(paths.OnWelcome(5, Told(4))), "adopt 5 taken 4");

  Paths high(kHigh, kLow, true);
  high.OnWanted();
  high.OnDialed(5);
  EXPECT_EQ(Text(high.OnChallenge(5)), "prove 5 number 1");
  EXPECT_EQ(Text(high.OnProof(6, 1, Told(0))), "abort 5, welcome 6 taken 0");
  EXPECT_EQ(Text(high.OnWelcome(5, Told(0))), "");
  EXPECT_EQ(Text(high.OnRefused(5, RefuseCode::kStale, 1)), "");
  EXPECT_EQ(high.path(), 6u);
}

TEST_F(PathsTest, AProofAboveTheAttemptWins) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnProof(6, 2, Told(0))), "abort 5, welcome 6 taken 0");
  paths.OnClosed(6);
  paths.OnRetry();
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "prove 7 number 3");
}

TEST_F(PathsTest, ThePromiseSurvivesAFailedAttempt) {
  ProveOn(5);
  paths.OnClosed(5);
  EXPECT_EQ(Text(paths.OnProof(6, 1, Told(0))), "refuse 6 code 1 number 1");
  EXPECT_EQ(paths.state(), State::kBroken);
}

TEST_F(PathsTest, ThePromiseSurvivesALostPath) {
  OpenAccepted(5, 4);
  paths.OnClosed(5);
  EXPECT_EQ(Text(paths.OnProof(6, 4, Told(0))), "refuse 6 code 1 number 4");  // the same again
  EXPECT_EQ(Text(paths.OnProof(7, 3, Told(0))), "refuse 7 code 1 number 4");
  OpenAccepted(8, 5);
}

TEST_F(PathsTest, ThePromiseSurvivesWhatWasNotTakenInTheEnd) {
  OpenAccepted(5, 4);
  EXPECT_EQ(Text(paths.OnProof(6, 7, Told(0))), "abort 5, lost");
  EXPECT_EQ(Text(paths.OnClosed(6)), "pause 1");
  EXPECT_EQ(Text(paths.OnClosed(5)), "");
  EXPECT_EQ(Text(paths.OnProof(7, 6, Told(0))), "refuse 7 code 1 number 7");
}

// --- The fence (EXACT).

TEST_F(PathsTest, AnotherPathIsTakenWhenTheOlderHasClosed) {
  OpenOwn(5);
  EXPECT_EQ(Text(paths.OnProof(6, 2, Told(3))), "abort 5, lost");
  EXPECT_EQ(paths.state(), State::kBroken);
  EXPECT_EQ(paths.path(), 0u);
  EXPECT_EQ(paths.older_open(), 1u);
  EXPECT_EQ(Text(paths.OnWanted()), "");
  EXPECT_EQ(Text(paths.OnRetry()), "");
  EXPECT_EQ(Text(paths.OnFirstFrame(5)), "");
  EXPECT_EQ(Text(paths.OnClosed(5)), "welcome 6 taken 3");
  EXPECT_EQ(paths.state(), State::kOpen);
  EXPECT_EQ(paths.older_open(), 0u);
}

TEST_F(PathsTest, AHigherProofTakesThePlaceOfOneThatWaits) {
  OpenOwn(5);
  paths.OnProof(6, 2, Told(3));
  EXPECT_EQ(Text(paths.OnProof(7, 2, Told(4))), "refuse 7 code 1 number 2");
  EXPECT_EQ(Text(paths.OnProof(8, 3, Told(5))), "abort 6");
  EXPECT_EQ(Text(paths.OnClosed(6)), "");
  EXPECT_EQ(Text(paths.OnClosed(5)), "welcome 8 taken 5");
}

TEST_F(PathsTest, TheOwnProofWaitsForTheOlderPathToo) {
  OpenOwn(5);
  paths.OnProof(6, 2, Told(0));
  EXPECT_EQ(Text(paths.OnClosed(6)), "pause 1");
  EXPECT_EQ(Text(paths.OnRetry()), "dial");
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "");
  EXPECT_EQ(paths.state(), State::kConnecting);
  EXPECT_EQ(Text(paths.OnClosed(5)), "prove 7 number 3");
}

TEST_F(PathsTest, AConnectionThatEndsWhileItsProofWaitsIsForgotten) {
  OpenOwn(5);
  paths.OnProof(6, 2, Told(0));
  paths.OnClosed(6);
  paths.OnRetry();
  paths.OnDialed(7);
  paths.OnChallenge(7);
  EXPECT_EQ(Text(paths.OnClosed(7)), "pause 2");
  EXPECT_EQ(Text(paths.OnClosed(5)), "");
  paths.OnRetry();
  paths.OnDialed(8);
  EXPECT_EQ(Text(paths.OnClosed(5)), "");
  EXPECT_EQ(paths.state(), State::kConnecting);  // no Challenge on this one yet
}

// --- A path that is lost.

TEST_F(PathsTest, WhoHadMadeItConnectsAtOnceTheOtherAMomentLater) {
  OpenOwn(5);
  EXPECT_EQ(Text(paths.OnClosed(5)), "lost, dial");
  EXPECT_EQ(paths.path(), 0u);

  Paths other(kHigh, kLow, true);
  other.OnProof(6, 1, Told(0));
  other.OnFirstFrame(6);
  EXPECT_EQ(Text(other.OnClosed(6)), "lost, short pause");
  EXPECT_EQ(other.state(), State::kBroken);
  EXPECT_EQ(Text(other.OnRetry()), "dial");
}

// --- The end.

TEST_F(PathsTest, AnEndInEachStateIsForGood) {
  const auto ends = [](Paths& paths, const std::string& actions) {
    EXPECT_EQ(Text(paths.End()), actions);
    EXPECT_EQ(paths.state(), State::kEnded);
    EXPECT_EQ(Text(paths.OnProof(90, 99, Told(0))), "refuse 90 code 6 number 0");
    EXPECT_EQ(Text(paths.OnWanted()) + Text(paths.OnRetry()) + Text(paths.OnDialFailed(true)) + Text(paths.End()), "");
    EXPECT_EQ(Text(paths.OnDialed(91)), "abort 91");
  };
  const auto with = [&](auto... steps) {
    Paths fresh(kLow, kHigh, true);
    (steps(fresh), ...);
    return fresh;
  };
  const auto dials = [](Paths& p) { p.OnWanted(); };
  const auto connects = [](Paths& p) { p.OnDialed(5); };
  const auto proves = [](Paths& p) { p.OnChallenge(5); };
  const auto opens = [](Paths& p) { p.OnWelcome(5, Told(0)); };
  const auto takes = [](Paths& p) { p.OnProof(6, 2, Told(0)); };
  Paths idle = with(), dialing = with(dials), connected = with(dials, connects), proved = with(dials, connects, proves),
        open = with(dials, connects, proves, opens), taking = with(dials, connects, proves, opens, takes),
        broken = with(dials, connects, proves, [](Paths& p) { p.OnClosed(5); });
  ends(idle, "");
  ends(dialing, "drop dial");
  ends(connected, "abort 5");
  ends(proved, "abort 5");
  ends(open, "");  // its path is the caller's, who says goodbye on it
  EXPECT_EQ(open.path(), 5u);
  EXPECT_EQ(Text(open.OnClosed(5)), "");
  EXPECT_EQ(open.path(), 0u);
  ends(taking, "refuse 6 code 6 number 0");
  EXPECT_EQ(Text(taking.OnClosed(5)), "");
  EXPECT_EQ(taking.older_open(), 0u);
  ends(broken, "");
}

TEST_F(PathsTest, TheOtherSideEndsThePair) {
  ProveOn(5);
  EXPECT_EQ(Text(paths.OnRefused(5, RefuseCode::kEnded, 0)), "abort 5");
  EXPECT_EQ(paths.state(), State::kEnded);

  Paths open(kLow, kHigh, true);
  open.OnProof(5, 1, Told(0));
  EXPECT_EQ(Text(open.OnRefused(4, RefuseCode::kEnded, 0)), "");
  EXPECT_EQ(open.state(), State::kOpen);
  EXPECT_EQ(Text(open.OnRefused(5, RefuseCode::kEnded, 0)), "");
  EXPECT_EQ(open.state(), State::kEnded);

  Paths older(kLow, kHigh, true);  // what is read late on an older path counts as well
  older.OnProof(5, 1, Told(0));
  older.OnProof(6, 2, Told(0));
  EXPECT_EQ(Text(older.OnRefused(5, RefuseCode::kEnded, 0)), "refuse 6 code 6 number 0");
}

// --- What comes where it means nothing.

// Events of links that were never known, or were given up: late Challenges, Welcomes, refusals, ends. And a pause, a
// failed dial and a Proof again.
void ExpectIgnored(Paths& paths) {
  const State state = paths.state();
  const Paths::LinkId path = paths.path();
  const uint64_t older = paths.older_open();
  for (const Paths::LinkId link : {Paths::LinkId{0}, Paths::LinkId{77}}) {
    EXPECT_EQ(Text(paths.OnChallenge(link)), "");
    EXPECT_EQ(Text(paths.OnWelcome(link, Told(9))), "");
    for (int code = 1; code <= 6; ++code) {
      EXPECT_EQ(Text(paths.OnRefused(link, static_cast<RefuseCode>(code), 50)), "");
    }
    EXPECT_EQ(Text(paths.OnFirstFrame(link)), "");
    EXPECT_EQ(Text(paths.OnClosed(link)), "");
  }
  EXPECT_EQ(paths.state(), state);
  EXPECT_EQ(paths.path(), path);
  EXPECT_EQ(paths.older_open(), older);
}

TEST_F(PathsTest, UnknownLinksChangeNothingInAnyState) {
  ExpectIgnored(paths);
  paths.OnWanted();
  ExpectIgnored(paths);
  paths.OnDialed(5);
  ExpectIgnored(paths);
  paths.OnChallenge(5);
  ExpectIgnored(paths);
  paths.OnWelcome(5, Told(0));
  ExpectIgnored(paths);
  paths.OnProof(6, 2, Told(0));
  ExpectIgnored(paths);
  paths.OnClosed(6);
  ExpectIgnored(paths);
  paths.OnClosed(5);
  ExpectIgnored(paths);
  EXPECT_EQ(Text(paths.OnRetry()), "dial");
  paths.OnDialed(7);
  EXPECT_EQ(Text(paths.OnChallenge(7)), "prove 7 number 3");  // the refusals of unknown links raised nothing
}

TEST_F(PathsTest, LateEventsOfKnownLinksChangeNothing) {
  Connect(5);
  EXPECT_EQ(Text(paths.OnWelcome(5, Told(0))), "");  // before the Proof
  EXPECT_EQ(Text(paths.OnRetry()), "");
  EXPECT_EQ(Text(paths.OnDialed(6)), "abort 6");  // no dial is under way
  EXPECT_EQ(Text(paths.OnDialFailed(true)), "");
  EXPECT_EQ(paths.state(), State::kConnecting);
  paths.OnChallenge(5);
  EXPECT_EQ(Text(paths.OnChallenge(5)), "");
  EXPECT_EQ(Text(paths.OnProof(5, 9, Told(0))), "");  // of the own connection
  paths.OnWelcome(5, Told(0));
  EXPECT_EQ(Text(paths.OnWelcome(5, Told(0))), "");
  EXPECT_EQ(Text(paths.OnRefused(5, RefuseCode::kStale, 50)), "");
  EXPECT_EQ(Text(paths.OnRetry()), "");
  EXPECT_EQ(Text(paths.OnProof(5, 9, Told(0))), "");
  EXPECT_EQ(paths.path(), 5u);
  paths.OnProof(6, 2, Told(0));
  EXPECT_EQ(Text(paths.OnProof(6, 3, Told(0))), "");  // of what is being taken
  EXPECT_EQ(Text(paths.OnRefused(6, RefuseCode::kStale, 50)), "");
  EXPECT_EQ(Text(paths.OnProof(5, 9, Told(0))), "");  // of an older path
  EXPECT_EQ(Text(paths.OnClosed(5)), "welcome 6 taken 0");
  EXPECT_EQ(Text(paths.OnClosed(5)), "");
  EXPECT_EQ(paths.path(), 6u);
}

}  // namespace
}  // namespace gradwire::rpc
