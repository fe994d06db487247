// Groups whose workers come and go, in one thread: whoever crashes at whatever step, its name and its rank can be taken
// again, and all who live know the same workers.
#include "worker/open_group.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/sim_scheduler.h"
#include "transport/inproc/inproc_transport.h"
#include "worker/rendezvous.h"
#include "worker/test_store.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;

struct Node {
  rpc::Peer self;
  std::shared_ptr<MortalStore> store;
  WorkerParts parts;
  std::shared_ptr<Functions> functions = std::make_shared<Functions>();
  std::unique_ptr<OpenGroup> open_group;
  std::shared_ptr<rpc::Rpc> rpc;
  std::string address;
  bool joined = false;
  bool dead = false;
  Failure failure{.text = ""};
};

class MortalGroup {
 public:
  explicit MortalGroup(int seed) : scheduler_(std::make_shared<SimScheduler>(static_cast<uint64_t>(seed))) {}
  ~MortalGroup() {
    for (auto& node : nodes_) node->rpc->Stop("the simulation has ended");
    for (auto& node : nodes_) node->parts.transports[0]->Stop();
    scheduler_->RunReady();
    scheduler_->DropTimers();
  }

  // A worker that begins to join.
  Node& Start(const std::string& name, uint32_t rank) {
    nodes_.push_back(std::make_unique<Node>());
    Node& node = *nodes_.back();
    node.self = {.id = {rank, ++last_incarnation_}, .name = name};
    node.store = std::make_shared<MortalStore>(store_);
    node.parts = {scheduler_, scheduler_, {std::make_shared<transport::InprocTransport>(network_, scheduler_)}};
    node.functions->Add("same", [](int64_t value) { return value; });
    auto internal = std::make_shared<Functions>();
    node.open_group = std::make_unique<OpenGroup>(node.store, node.parts, *internal);
    rpc::Rpc::Options options;
    options.self = node.self;
    options.is_open = true;
    options.job_key = node.open_group->JobKey();
    options.clock = scheduler_;
    options.executor = scheduler_;
    options.transports = node.parts.transports;
    options.functions = node.functions;
    options.internal_functions = internal;
    options.on_peer_ended = [&node](const rpc::Peer& peer, const Failure&) { node.rpc->members().Lose(peer.id); };
    node.rpc = std::make_shared<rpc::Rpc>(std::move(options));
    node.open_group->Attach(node.rpc.get());
    node.address = node.rpc->Listen()[0];
    scheduler_->Spawn([&node] {
      const rpc::Member self{.peer = node.self, .addresses = {node.address}};
      node.rpc->members().Add(self);
      try {
        node.open_group->Join(self, milliseconds(0));
        node.joined = true;
      } catch (const Error& error) {
        node.failure = error.failure();
        node.open_group->Leave();
      }
    });
    return node;
  }
  Node& Joined(const std::string& name, uint32_t rank) {
    Node& node = Start(name, rank);
    scheduler_->RunReady();
    EXPECT_TRUE(node.joined) << node.failure.text;
    return node;
  }

  // Nothing of it goes on, and it has said nothing to the store.
  void Crash(Node& node) {
    node.dead = true;
    node.store->Die();
    network_.Kill(node.address);
    node.rpc->Stop("it was killed");
  }
  void CrashAfter(Node& node, size_t steps) { PostCrash(node, scheduler_->steps() + steps); }

  // All that have joined and live know each other, nobody else, and reach each other.
  void ExpectOneView(const std::string& where) {
    std::map<std::string, WorkerId> expected;
    for (const auto& node : nodes_) {
      if (node->joined && !node->dead) expected[node->self.name] = node->self.id;
    }
    for (const auto& node : nodes_) {
      if (!node->joined || node->dead) continue;
      std::map<std::string, WorkerId> known;
      for (const rpc::Member& member : node->rpc->members().All()) known[member.peer.name] = member.peer.id;
      ASSERT_EQ(known, expected) << "as " << node->self.name << " sees it; " << where;
      for (const auto& [name, id] : expected) {
        rpc::Call call{.to = id, .function = "same", .args = EncodeValue(std::tuple<int64_t>(id.incarnation))};
        Outcome outcome = node->rpc->SendAndWait(std::move(call));
        ASSERT_TRUE(outcome.ok()) << node->self.name << " to " << name << ": " << outcome.failure().text << where;
      }
    }
  }

  SimScheduler& scheduler() { return *scheduler_; }
  TestStore& store() { return *store_; }
  transport::InprocNetwork& network() { return network_; }
  const std::shared_ptr<SimScheduler>& shared_scheduler() { return scheduler_; }

 private:
  void PostCrash(Node& node, size_t at) {
    scheduler_->Post([this, &node, at] { scheduler_->steps() < at ? PostCrash(node, at) : Crash(node); });
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  const std::shared_ptr<TestStore> store_ = std::make_shared<TestStore>();
  std::shared_ptr<SimScheduler> scheduler_;
  transport::InprocNetwork network_;
  uint32_t last_incarnation_ = 100;
};

std::string At(int seed, size_t step) { return " seed " + std::to_string(seed) + ", step " + std::to_string(step); }

void ExpectRefused(const Node& node, const std::string& text) {
  EXPECT_FALSE(node.joined);
  EXPECT_EQ(node.failure.code, ErrorCode::kInvalid);
  EXPECT_NE(node.failure.text.find(text), std::string::npos) << node.failure.text;
}

TEST(OpenGroup, WhoeverComesAtOnceAllKnowEachOther) {
  for (int seed = 0; seed < 50; ++seed) {
    MortalGroup group(seed);
    for (uint32_t rank = 0; rank < 4; ++rank) group.Start("worker" + std::to_string(rank), rank);
    group.scheduler().RunReady();
    group.ExpectOneView(At(seed, 0));
  }
}

TEST(OpenGroup, TheNameAndTheRankOfALivingWorkerAreRefused) {
  MortalGroup group(1);
  group.Joined("a", 0);
  Node& name = group.Start("a", 1);
  Node& rank = group.Start("b", 0);
  group.scheduler().RunReady();  // no time passes
  ExpectRefused(name, "name 'a' is not unique: another worker of this group has it, 'a' of rank 0");
  ExpectRefused(rank, "rank 0 is not unique: another worker of this group has it, 'a' of rank 0");
  group.Joined("b", 1);
  group.ExpectOneView("");
}

// Whoever notices the crash when: the newcomer's word may come first.
TEST(OpenGroup, TheNameAndTheRankOfACrashedWorkerCanBeTakenAtOnce) {
  for (int seed = 0; seed < 50; ++seed) {
    for (const auto& [name, rank] : {std::pair<std::string, uint32_t>{"b", 1}, {"b", 7}, {"other", 1}}) {
      MortalGroup group(seed);
      group.Joined("a", 0);
      Node& crashed = group.Joined("b", 1);
      group.Joined("c", 2);
      group.Crash(crashed);
      Node& newcomer = group.Start(name, rank);
      group.scheduler().RunReady();
      ASSERT_TRUE(newcomer.joined) << newcomer.failure.text;
      group.ExpectOneView(At(seed, 0));
      group.Joined("late", 3);  // what the crashed one has published is no obstacle
      group.ExpectOneView(At(seed, 0));
      group.Crash(newcomer);
      group.Joined("b", 1);  // again
      group.ExpectOneView(At(seed, 0));
    }
  }
}

// One that others still hold a session with, but that cannot be reached any more where it said it listens.
TEST(OpenGroup, WhatOthersHoldOfOneWhosePlaceIsTakenEndsAndItDoesNotComeBack) {
  for (int seed = 0; seed < 20; ++seed) {
    MortalGroup group(seed);
    Node& a = group.Joined("a", 0);
    Node& unreachable = group.Joined("b", 1);
    const std::string record = EncodeMember({.peer = unreachable.self, .addresses = {"inproc://999"}});
    for (const char* key : {"gradwire/open/name/b", "gradwire/open/rank/1"}) group.store().Set(key, record);
    group.Joined("b", 1);
    unreachable.dead = true;
    group.ExpectOneView(At(seed, 0));
    rpc::Call call{.to = a.self.id, .function = "same", .args = EncodeValue(std::tuple<int64_t>(1))};
    unreachable.rpc->members().AddUnlessTaken({.peer = a.self, .addresses = {a.address}});
    EXPECT_FALSE(unreachable.rpc->SendAndWait(std::move(call)).ok());
    group.ExpectOneView(At(seed, 1));
  }
}

TEST(OpenGroup, TheDeadAreForgottenInTheEnd) {
  constexpr size_t kDeaths = 150, kRemembered = 100;
  MortalGroup group(11);
  Node& lives = group.Joined("lives", 0);
  for (size_t death = 0; death < kDeaths; ++death) {
    Node& mortal = group.Joined("mortal", 1);
    ASSERT_EQ(lives.rpc->members().size(), 2u);
    group.Crash(mortal);
    group.scheduler().Advance(std::chrono::seconds(1));
    ASSERT_EQ(lives.rpc->members().size(), 1u);
    EXPECT_LE(lives.rpc->sessions(), kRemembered);
  }
  EXPECT_GE(lives.rpc->sessions(), kRemembered / 2) << "and until then they hear why they are refused";
}

TEST(OpenGroup, OfManyWhoWantTheNameOfACrashedWorkerOneGetsIt) {
  for (int seed = 0; seed < 50; ++seed) {
    MortalGroup group(seed);
    group.Joined("a", 0);
    group.Crash(group.Joined("b", 1));
    std::vector<Node*> newcomers;
    for (uint32_t rank = 2; rank < 6; ++rank) newcomers.push_back(&group.Start("b", rank));
    group.scheduler().RunReady();
    size_t joined = 0;
    for (const Node* newcomer : newcomers) {
      joined += newcomer->joined;
      if (!newcomer->joined) ExpectRefused(*newcomer, "name 'b' is not unique");
    }
    EXPECT_EQ(joined, 1u) << At(seed, 0);
    group.ExpectOneView(At(seed, 0));
  }
}

TEST(OpenGroup, OneThatDiesAtAnyStepOfItsJoiningIsNoObstacle) {
  for (int seed = 0; seed < 5; ++seed) {
    bool outlived = false;
    for (size_t step = 0; !outlived; ++step) {
      ASSERT_LT(step, 2000u);
      MortalGroup group(seed);
      group.Joined("a", 0);
      group.Joined("c", 2);
      Node& mortal = group.Start("b", 1);
      group.CrashAfter(mortal, step);
      Node& meanwhile = group.Start("d", 3);
      group.scheduler().RunReady();
      outlived = mortal.joined;
      ASSERT_TRUE(meanwhile.joined) << meanwhile.failure.text << At(seed, step);
      group.Joined("b", 1);
      group.ExpectOneView(At(seed, step));
    }
  }
}

TEST(OpenGroup, WhoSaysNothingIsNotTakenForDead) {
  MortalGroup group(4);
  group.Joined("a", 0);
  transport::InprocTransport silent(group.network(), group.shared_scheduler());
  std::vector<std::shared_ptr<transport::Connection>> open;
  const std::string address = silent.Listen([&](auto connection) { open.push_back(std::move(connection)); });
  const rpc::Peer peer{.id = {1, 5}, .name = "b"};
  group.store().Set("gradwire/open/name/b", EncodeMember({.peer = peer, .addresses = {address}}));
  Node& newcomer = group.Start("b", 1);
  group.scheduler().Advance(std::chrono::seconds(1));
  EXPECT_EQ(newcomer.failure.text, "");
  group.scheduler().Advance(std::chrono::seconds(5));
  ExpectRefused(newcomer, "'b' of rank 1, and does not say whether it lives");
  open.clear();
  silent.Stop();
  group.Joined("b", 1);
  group.ExpectOneView("");
}

TEST(OpenGroup, AnotherWorkerAtTheAddressOfACrashedOneIsNotIt) {
  MortalGroup group(5);
  const Node& other = group.Joined("a", 0);
  const rpc::Peer crashed{.id = {1, 5}, .name = "b"};
  group.store().Set("gradwire/open/name/b", EncodeMember({.peer = crashed, .addresses = {other.address}}));
  group.Joined("b", 1);
  group.ExpectOneView("");
}

}  // namespace
}  // namespace gradwire::sim
