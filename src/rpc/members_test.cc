#include "rpc/members.h"

#include <gtest/gtest.h>

#include "gradwire/error.h"

namespace gradwire::rpc {
namespace {

void Fill(Members& members) {
  members.Add({.peer = {.id = {0, 11}, .name = "server"}, .addresses = {"tcp://127.0.0.1:1"}});
  members.Add({.peer = {.id = {1, 12}, .name = "trainer"}, .addresses = {}});
}

TEST(Members, AreFoundByNameByRankAndById) {
  Members members;
  Fill(members);
  EXPECT_EQ(members.Named("trainer").id.rank, 1u);
  EXPECT_EQ(members.Ranked(0).name, "server");
  EXPECT_EQ(members.Find({0, 11})->addresses.size(), 1u);
  EXPECT_EQ(members.size(), 2u);
  EXPECT_EQ(members.All()[1].peer.name, "trainer");
}

TEST(Members, AnotherLifeOfAWorkerIsAnotherWorker) {
  Members members;
  Fill(members);
  EXPECT_FALSE(members.Find({0, 99}));
}

TEST(Members, OneThatHasANameOrARankTakesItFromWhoHadIt) {
  for (const Peer& newcomer : {Peer{{1, 13}, "trainer"}, Peer{{7, 13}, "trainer"}, Peer{{1, 13}, "other"}}) {
    Members members;
    Fill(members);
    members.Add({.peer = newcomer});
    members.Remove({1, 12});  // of another life: nothing happens
    EXPECT_EQ(members.size(), 2u);
    EXPECT_EQ(members.Named(newcomer.name).id, newcomer.id);
    EXPECT_EQ(members.Ranked(newcomer.id.rank).name, newcomer.name);
    const bool name_is_free = newcomer.name == "other";
    EXPECT_EQ(members.Find({1, 12}).has_value(), name_is_free) << "the lost one is known as long as it has its name";
    if (name_is_free) {
      EXPECT_EQ(members.Named("trainer").id, (WorkerId{1, 12}));
    }
    if (newcomer.id.rank == 7) {
      EXPECT_THROW(members.Ranked(1), Error);
    }
  }
}

TEST(Members, TheLostAreFoundUntilOthersTakeTheirNames) {
  Members members;
  Fill(members);
  members.Lose({1, 99});  // of another life: nothing happens
  EXPECT_EQ(members.size(), 2u);
  members.Lose({1, 12});
  EXPECT_EQ(members.size(), 1u);
  EXPECT_EQ(members.All().size(), 1u);
  EXPECT_EQ(members.Named("trainer").id, (WorkerId{1, 12}));
  EXPECT_EQ(members.Ranked(1).name, "trainer");
  EXPECT_TRUE(members.Find({1, 12}));
  EXPECT_FALSE(members.AddUnlessTaken({.peer = {.id = {1, 12}, .name = "trainer"}})) << "it does not come back";
  EXPECT_TRUE(members.AddUnlessTaken({.peer = {.id = {1, 13}, .name = "other"}}));
  EXPECT_EQ(members.Ranked(1).name, "other");
  EXPECT_EQ(members.Named("trainer").id, (WorkerId{1, 12}));
  EXPECT_TRUE(members.AddUnlessTaken({.peer = {.id = {5, 14}, .name = "trainer"}}));
  EXPECT_EQ(members.Named("trainer").id, (WorkerId{5, 14}));
  EXPECT_FALSE(members.Find({1, 12}));
}

TEST(Members, OnlyTheWorkerThatIsMeantIsFoundByItsInfo) {
  Members members;
  Fill(members);
  const WorkerInfo first{"trainer", 1, 12};
  EXPECT_EQ(members.Meant(first).id, (WorkerId{1, 12}));
  EXPECT_EQ(members.Meant({"trainer", 1}).id, (WorkerId{1, 12}));
  const auto failure_of = [&](const WorkerInfo& info) {
    try {
      members.Meant(info);
    } catch (const Error& error) {
      return error.failure();
    }
    return Failure{.text = ""};
  };
  const Failure other_rank = failure_of({"trainer", 0});
  EXPECT_EQ(other_rank.code, ErrorCode::kUnknownWorker);
  EXPECT_NE(other_rank.text.find("no worker 'trainer' of rank 0, but one of rank 1"), std::string::npos)
      << other_rank.text;
  EXPECT_EQ(failure_of({"other", 1}).code, ErrorCode::kUnknownWorker);
  EXPECT_EQ(failure_of({"trainer", -1}).code, ErrorCode::kUnknownWorker);
  members.Lose({1, 12});
  EXPECT_EQ(members.Meant(first).id, (WorkerId{1, 12})) << "calls to it tell why it is gone";
  for (const uint32_t rank : {1u, 5u}) {
    members.Add({.peer = {.id = {rank, 13 + rank}, .name = "trainer"}});
    const Failure stale = failure_of(first);
    EXPECT_EQ(stale.code, ErrorCode::kDisconnected);
    EXPECT_EQ(stale.worker, "trainer");
    EXPECT_NE(stale.text.find("another worker has taken its name"), std::string::npos) << stale.text;
    EXPECT_EQ(members.Meant({"trainer", rank}).id, (WorkerId{rank, 13 + rank}));
  }
}

TEST(Members, MayBeAddedUnlessTaken) {
  Members members;
  Fill(members);
  EXPECT_FALSE(members.AddUnlessTaken({.peer = {.id = {1, 13}, .name = "trainer"}}));
  EXPECT_FALSE(members.AddUnlessTaken({.peer = {.id = {7, 13}, .name = "trainer"}}));
  EXPECT_FALSE(members.AddUnlessTaken({.peer = {.id = {1, 13}, .name = "other"}}));
  EXPECT_TRUE(members.AddUnlessTaken({.peer = {.id = {2, 13}, .name = "other"}}));
  EXPECT_TRUE(members.AddUnlessTaken({.peer = {.id = {1, 12}, .name = "trainer"}, .addresses = {"tcp://127.0.0.1:2"}}));
  EXPECT_EQ(members.Find({1, 12})->addresses.size(), 1u);
  EXPECT_EQ(members.size(), 3u);
}

TEST(Members, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  Members members;
  Fill(members);
  try {
    members.Named("serve");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownWorker);
    EXPECT_NE(std::string(error.what()).find("server, trainer"), std::string::npos);
  }
  EXPECT_THROW(members.Ranked(2), Error);
  EXPECT_THROW(members.Ranked(-1), Error);
  EXPECT_THROW(members.Ranked(int64_t{1} << 33), Error);
}

}  // namespace
}  // namespace gradwire::rpc
