// M1: each rule of docs/membership.md by itself. What they are worth together is explored in tests/sim.
#include "rpc/membership.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradwire::rpc {
namespace {

using Standing = Membership::Standing;
using wire::Ballot;

constexpr WorkerId kA{0, 1}, kB{1, 1}, kC{2, 1}, kD{3, 1}, kNew{9, 1};
const WorkerSet kEverybody{kA, kB, kC};

// Of the messages of one kind among the actions: to whom, and the message.
template <class Message>
std::vector<std::pair<WorkerId, Message>> Sent(const Membership::Actions& actions) {
  std::vector<std::pair<WorkerId, Message>> sent;
  for (const auto& action : actions) {
    const auto* send = std::get_if<Membership::Send>(&action);
    if (send && std::holds_alternative<Message>(send->message)) {
      sent.emplace_back(send->to, std::get<Message>(send->message));
    }
  }
  return sent;
}

template <class Message>
WorkerSet SentTo(const Membership::Actions& actions) {
  WorkerSet to;
  for (const auto& [worker, message] : Sent<Message>(actions)) to.insert(worker);
  return to;
}

WorkerSet EndedSessions(const Membership::Actions& actions) {
  WorkerSet ended;
  for (const auto& action : actions) {
    if (const auto* end = std::get_if<Membership::EndSession>(&action)) ended.insert(end->worker);
  }
  return ended;
}

// A that judges C, which it cannot reach.
Membership Judging() {
  Membership a(kA, kEverybody);
  (void)a.OnBroken(kC);
  (void)a.OnJudge();
  return a;
}

TEST(Membership, StartsWithAllOfAFixedGroupInTheFirstEpoch) {
  const Membership b(kB, kEverybody);
  EXPECT_EQ(b.standing(), Standing::kIn);
  EXPECT_EQ(b.epoch(), 1u);
  EXPECT_EQ(b.members(), kEverybody);
  EXPECT_FALSE(b.Acts());
  EXPECT_EQ(b.Target(), kA);
}

TEST(Membership, ReportsASuspicionOnceToTheMostSeniorThatItReaches) {
  Membership b(kB, kEverybody);
  const auto first = b.OnBroken(kC);
  EXPECT_EQ(SentTo<wire::GroupReport>(first), WorkerSet{kA});
  EXPECT_EQ(Sent<wire::GroupReport>(first)[0].second.about, WorkerSet{kC});
  EXPECT_TRUE(b.OnBroken(kC).empty());
  // The path may have broken under the report.
  EXPECT_EQ(SentTo<wire::GroupReport>(b.OnPathLost(kA)), WorkerSet{kA});
}

TEST(Membership, TheNextOneActsWhenTheCoordinatorIsSuspected) {
  Membership b(kB, kEverybody);
  EXPECT_TRUE(Sent<wire::GroupReport>(b.OnBroken(kA)).empty());
  EXPECT_TRUE(b.Acts());
  EXPECT_TRUE(b.WantsToJudge());
  (void)b.OnHeard(kA);
  EXPECT_FALSE(b.Acts());
}

TEST(Membership, ARoundAsksAllTheSuspectsToo) {
  Membership a(kA, kEverybody);
  (void)a.OnBroken(kC);
  const auto actions = a.OnJudge();
  EXPECT_EQ(SentTo<wire::GroupAsk>(actions), (WorkerSet{kB, kC}));
  EXPECT_EQ(Sent<wire::GroupAsk>(actions)[0].second.wanted, WorkerSet{kC});
  EXPECT_EQ(a.Pending(), (WorkerSet{kB, kC}));
}

TEST(Membership, WhomNobodyReachesIsLostOnceAQuorumHasAccepted) {
  Membership a = Judging();
  const Ballot ballot = a.round()->ballot;
  (void)a.OnMissed(kC);
  const auto proposed = a.OnMessage(kB, wire::GroupVote{ballot, std::nullopt, {}, {}});
  EXPECT_EQ(SentTo<wire::GroupPropose>(proposed), WorkerSet{kB});
  EXPECT_EQ(a.epoch(), 1u);
  const auto decided = a.OnMessage(kB, wire::GroupAccept{ballot});
  EXPECT_EQ(SentTo<wire::GroupView>(decided), (WorkerSet{kB, kC}));  // the lost one too
  EXPECT_EQ(EndedSessions(decided), WorkerSet{kC});
  EXPECT_EQ(a.epoch(), 2u);
  EXPECT_EQ(a.members(), (WorkerSet{kA, kB}));
  EXPECT_EQ(a.removed(), WorkerSet{kC});
}

TEST(Membership, WhomAVoterReachesIsOnlyParted) {
  Membership a = Judging();
  (void)a.OnMissed(kC);
  (void)a.OnMessage(kB, wire::GroupVote{a.round()->ballot, std::nullopt, {kC}, {}});
  EXPECT_FALSE(a.round());
  EXPECT_EQ(a.epoch(), 1u);
  EXPECT_EQ(a.parted(), WorkerSet{kC});
  (void)a.OnRecheck(kC);
  EXPECT_TRUE(a.WantsToJudge());
  (void)a.OnMet(kC);
  EXPECT_TRUE(a.parted().empty());
}

TEST(Membership, WhoIsGoneIsNotWaitedFor) {
  Membership a(kA, {kA, kB});
  (void)a.OnGone(kB);
  (void)a.OnJudge();
  EXPECT_EQ(a.members(), WorkerSet{kA});
  EXPECT_EQ(a.epoch(), 2u);
}

TEST(Membership, OfTwoTheLivingOneGoesOnWhenTheOtherIsFrozenAndNotWhenItIsDark) {
  Membership b(kB, {kA, kB});
  (void)b.OnBroken(kA);
  (void)b.OnJudge();
  (void)b.OnStuck(kA);
  EXPECT_EQ(b.members(), WorkerSet{kB});

  Membership dark(kB, {kA, kB});
  (void)dark.OnDark(kA);
  (void)dark.OnJudge();
  (void)dark.OnStuck(kA);
  EXPECT_EQ(dark.standing(), Standing::kCut);
}

TEST(Membership, HalfOfAViewDecidesOnlyWithTheMostSenior) {
  const Membership a(kA, {kA, kB, kC, kD});
  EXPECT_TRUE(a.IsQuorum({kA, kD}, {}));
  EXPECT_FALSE(a.IsQuorum({kB, kC}, {}));
  EXPECT_TRUE(a.IsQuorum({kB, kC}, {kA}));
  EXPECT_FALSE(a.IsQuorum({kA}, {kC}));
  EXPECT_TRUE(a.IsQuorum({kA}, {kB, kC, kD}));
  const Membership every(kA, {kA, kB, kC, kD}, Partition::kEvery);
  EXPECT_TRUE(every.IsQuorum({kD}, {}));
}

TEST(Membership, WhoeverHasSleptNeedsMoreThanHalfUntilItIsAnswered) {
  Membership a(kA, {kA, kB});
  (void)a.OnSlept();
  EXPECT_FALSE(a.IsQuorum({kA}, {}));
  EXPECT_FALSE(a.IsQuorum({kA}, {kB}));
  (void)a.OnAnswered(kB);
  EXPECT_TRUE(a.IsQuorum({kA}, {}));
}

TEST(Membership, ARoundIsGivenUpAfterASleep) {
  Membership a = Judging();
  (void)a.OnSlept();
  EXPECT_FALSE(a.round());
  EXPECT_TRUE(a.WantsToJudge());
}

TEST(Membership, AMinorityFencesItselfAndTellsItsVoters) {
  Membership c(kC, {kA, kB, kC, kD});
  (void)c.OnDark(kA);
  (void)c.OnDark(kB);
  (void)c.OnJudge();
  const Ballot ballot = c.round()->ballot;
  (void)c.OnMissed(kA);
  (void)c.OnMissed(kB);
  const auto actions = c.OnMessage(kD, wire::GroupVote{ballot, std::nullopt, {}, {}});
  EXPECT_EQ(SentTo<wire::GroupCut>(actions), WorkerSet{kD});
  EXPECT_EQ(c.standing(), Standing::kCut);

  Membership d(kD, {kA, kB, kC, kD});
  (void)d.OnMessage(kC, wire::GroupAsk{ballot, d.members(), {kA, kB}});
  (void)d.OnMessage(kC, Sent<wire::GroupCut>(actions)[0].second);
  EXPECT_EQ(d.standing(), Standing::kCut);
}

TEST(Membership, AVoterKeepsItsPromise) {
  Membership c(kC, kEverybody);
  const Ballot low{1, 1, kA}, high{1, 1, kB};
  EXPECT_EQ(SentTo<wire::GroupVote>(c.OnMessage(kB, wire::GroupAsk{high, kEverybody, {}})), WorkerSet{kB});
  const auto nack = c.OnMessage(kA, wire::GroupAsk{low, kEverybody, {}});
  EXPECT_EQ(Sent<wire::GroupNack>(nack)[0].second.promised, high);
}

TEST(Membership, WhatAVoterHasAcceptedGoesOn) {
  Membership b(kB, kEverybody);
  (void)b.OnGone(kA);
  (void)b.OnJudge();
  const wire::AcceptedChange accepted{{1, 0, kA}, {{}, {kNew}}};
  const auto actions = b.OnMessage(kC, wire::GroupVote{b.round()->ballot, accepted, {}, {}});
  EXPECT_EQ(Sent<wire::GroupPropose>(actions)[0].second.change, accepted.change);
}

TEST(Membership, AStuckOneThatOthersReachIsAskedAgain) {
  Membership a = Judging();
  (void)a.OnStuck(kC);
  const auto actions = a.OnMessage(kB, wire::GroupVote{a.round()->ballot, std::nullopt, {kC}, {}});
  EXPECT_EQ(SentTo<wire::GroupAsk>(actions), WorkerSet{kC});
  EXPECT_EQ(a.Pending(), WorkerSet{kC});
}

TEST(Membership, ANewcomerIsLetInWhenAllHaveVoted) {
  Membership a(kA, {kA, kB});
  (void)a.OnMessage(kNew, wire::GroupReport{0, {}, {{kNew, {}}}});
  EXPECT_TRUE(a.WantsToJudge());
  (void)a.OnJudge();
  const Ballot ballot = a.round()->ballot;
  (void)a.OnMessage(kB, wire::GroupVote{ballot, std::nullopt, {}, {}});
  const auto actions = a.OnMessage(kB, wire::GroupAccept{ballot});
  EXPECT_EQ(SentTo<wire::GroupView>(actions), (WorkerSet{kB, kNew}));

  Membership newcomer(kNew, {});
  EXPECT_EQ(newcomer.standing(), Standing::kJoining);
  (void)newcomer.OnMessage(kA, wire::GroupView{2, {kA, kB, kNew}});
  EXPECT_EQ(newcomer.standing(), Standing::kIn);
}

TEST(Membership, ANewcomerIsRefusedWhileWhoHasItsNameLives) {
  Membership a(kA, {kA, kB});
  (void)a.OnMessage(kNew, wire::GroupReport{0, {}, {{kNew, {kB}}}});
  (void)a.OnJudge();
  EXPECT_EQ(a.round()->wanted, WorkerSet{kB});
  const auto actions = a.OnMessage(kB, wire::GroupVote{a.round()->ballot, std::nullopt, {}, {}});
  EXPECT_EQ(SentTo<wire::GroupTaken>(actions), WorkerSet{kNew});
}

TEST(Membership, OfTwoNewcomersOfOneRankOneIsLetIn) {
  const WorkerId again{kNew.rank, 2};
  Membership a(kA, {kA});
  (void)a.OnMessage(kNew, wire::GroupReport{0, {}, {{kNew, {}}}});
  (void)a.OnMessage(again, wire::GroupReport{0, {}, {{again, {kNew}}}});
  (void)a.OnJudge();
  EXPECT_EQ(a.members(), (WorkerSet{kA, kNew}));
}

TEST(Membership, AViewWithoutThisWorkerAndARefusalEndItsPart) {
  Membership lost(kC, kEverybody);
  (void)lost.OnMessage(kA, wire::GroupView{2, {kA, kB}});
  EXPECT_EQ(lost.standing(), Standing::kLost);

  Membership refused(kC, kEverybody);
  (void)refused.OnRefused(kA, 1);  // not newer than what this one knows
  EXPECT_EQ(refused.standing(), Standing::kIn);
  (void)refused.OnRefused(kA, 2);
  EXPECT_EQ(refused.standing(), Standing::kLost);
}

TEST(Membership, AnOlderViewChangesNothing) {
  Membership a(kA, kEverybody);
  (void)a.OnMessage(kB, wire::GroupView{3, {kA, kB}});
  (void)a.OnMessage(kB, wire::GroupView{2, kEverybody});
  EXPECT_EQ(a.epoch(), 3u);
  EXPECT_EQ(a.members(), (WorkerSet{kA, kB}));
}

TEST(Membership, LetsInMembersAndNewcomersAndNobodyThatItHasRemoved) {
  Membership a(kA, kEverybody);
  EXPECT_TRUE(a.LetsIn(kB, wire::GroupNack{}));
  EXPECT_FALSE(a.LetsIn(kNew, wire::GroupNack{}));
  EXPECT_TRUE(a.LetsIn(kNew, wire::GroupReport{0, {}, {{kNew, {}}}}));
  EXPECT_FALSE(a.LetsIn(kNew, wire::GroupReport{0, {}, {{kD, {}}}}));
  (void)a.OnMessage(kB, wire::GroupView{2, {kA, kB}});
  EXPECT_FALSE(a.LetsIn(kC, wire::GroupView{3, kEverybody}));
}

TEST(Membership, AReportThatNothingComesOfIsSettled) {
  Membership b(kB, kEverybody);
  (void)b.OnBroken(kC);
  (void)b.OnSettled(kC);
  EXPECT_TRUE(b.suspects().empty());
  EXPECT_EQ(b.parted(), WorkerSet{kC});
}

TEST(Membership, AfterItsEndNothingHappens) {
  Membership a(kA, kEverybody);
  (void)a.Leave();
  EXPECT_TRUE(a.ended());
  EXPECT_TRUE(a.OnGone(kB).empty());
  EXPECT_TRUE(a.OnMessage(kB, wire::GroupView{9, {kB}}).empty());
  EXPECT_EQ(a.standing(), Standing::kLeft);
}

}  // namespace
}  // namespace gradwire::rpc
