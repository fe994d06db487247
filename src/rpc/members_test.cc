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
    EXPECT_FALSE(members.Find({1, 12}));
    EXPECT_EQ(members.Named(newcomer.name).id, newcomer.id);
    EXPECT_EQ(members.Ranked(newcomer.id.rank).name, newcomer.name);
    if (newcomer.name == "other") {
      EXPECT_THROW(members.Named("trainer"), Error);
    }
    if (newcomer.id.rank == 7) {
      EXPECT_THROW(members.Ranked(1), Error);
    }
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
