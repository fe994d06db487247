// References between three workers in one thread: the real shell, handles and hooks over every order that a seed makes.
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "rref/messages.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

constexpr int kSeeds = 300;
using TensorRef = RRef<at::Tensor>;

// A cluster whose workers can make a tensor, read one, hold a reference, pass it on and let it go.
class References : public testing::TestWithParam<int> {
 protected:
  References() : cluster(static_cast<uint64_t>(GetParam()), 3) {
    for (size_t rank = 0; rank < 3; ++rank) {
      Functions& functions = *cluster[rank].functions;
      functions.Add("ones", [](int64_t n) { return at::ones({n}); });
      functions.Add("own", [this, rank](int64_t n) {
        return TensorRef(cluster[rank].references->Own(EncodeValue(at::ones({n})), ""));
      });
      functions.Add("fail", [](int64_t) -> at::Tensor { throw std::out_of_range("no such row"); });
      functions.Add("sum", [](TensorRef ref) { return ref.to_here().sum(); });
      functions.Add("hold", [this, rank](TensorRef ref) {
        held[rank].push_back(ref);
        return true;
      });
      functions.Add("give_back", [this, rank](int64_t) { return held[rank].back(); });
      functions.Add("failed_of", [this, rank](int64_t owner) {
        TensorRef ref(cluster.Remote(rank, static_cast<size_t>(owner), "fail", EncodeValue(std::tuple<int64_t>(1))));
        EXPECT_THROW(ref.to_here(), Error);
        return ref;
      });
      functions.Add("pass_to", [this, rank](TensorRef ref, int64_t to) {
        return cluster.Call<bool>(rank, static_cast<size_t>(to), "hold", ref);
      });
    }
  }
  TensorRef Make(size_t from, size_t to, int64_t n = 3) {
    return TensorRef(cluster.Remote(from, to, "ones", EncodeValue(std::tuple<int64_t>(n))));
  }
  void ExpectNothingLeft() {  // R2
    for (auto& mine : held) mine.clear();
    cluster.scheduler().RunReady();
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(cluster[rank].references->counts().entries, 0u) << "rank " << rank << ", seed " << GetParam();
    }
  }

  Cluster cluster;
  std::vector<TensorRef> held[3];
};

TEST_P(References, CreateFetchAndDrop) {
  {
    const TensorRef ref = Make(0, 1);
    EXPECT_EQ(ref.owner().name, "worker1");
    EXPECT_FALSE(ref.is_owner());
    EXPECT_TRUE(ref.to_here().equal(at::ones({3})));
    EXPECT_TRUE(ref.confirmed_by_owner());
    EXPECT_THROW(ref.local_value(), Error);
    EXPECT_EQ(cluster[1].references->counts().owned, 1u);
  }
  ExpectNothingLeft();
}

TEST_P(References, TheOwnerOfItsOwnCallSeesTheVeryValue) {
  {
    const TensorRef ref = Make(2, 2);
    EXPECT_TRUE(ref.is_owner());
    EXPECT_TRUE(ref.to_here().is_same(ref.local_value()));
  }
  ExpectNothingLeft();
}

TEST_P(References, UserToOwner) {  // rule 2
  {
    const TensorRef ref = Make(0, 1);
    EXPECT_EQ(cluster.Call<at::Tensor>(0, 1, "sum", ref).item<float>(), 3);
  }
  ExpectNothingLeft();
}

TEST_P(References, OwnerToUser) {  // rule 3
  {
    const TensorRef ref = Make(1, 1);
    EXPECT_EQ(cluster.Call<at::Tensor>(1, 0, "sum", ref).item<float>(), 3);
    EXPECT_TRUE(cluster.Call<bool>(1, 2, "hold", ref));
    EXPECT_TRUE(held[2].back().confirmed_by_owner());
  }
  ExpectNothingLeft();
}

TEST_P(References, UserToUserSurvivesItsGiver) {  // rule 4, R1
  {
    const TensorRef ref = Make(0, 1);
    EXPECT_TRUE(cluster.Call<bool>(0, 2, "hold", ref));
  }
  cluster.scheduler().RunReady();
  EXPECT_TRUE(held[2].back().to_here().equal(at::ones({3})));
  EXPECT_TRUE(held[2].back().confirmed_by_owner());
  ExpectNothingLeft();
}

TEST_P(References, DroppedRightAfterBeingShared) {  // R1: the message is still on its way
  std::optional<Outcome> outcome;
  {
    const TensorRef ref = Make(0, 1);
    rpc::Call call;
    call.to = cluster.id(2);
    call.function = "sum";
    call.args = EncodeValue(std::tuple<TensorRef>(ref));
    cluster.rpc(0).Send(std::move(call), [&](Outcome o) { outcome.emplace(std::move(o)); });
  }
  cluster.scheduler().RunReady();
  ASSERT_TRUE(outcome && outcome->ok());
  EXPECT_EQ(DecodeValue<at::Tensor>(outcome->value()).item<float>(), 3);
  outcome.reset();
  ExpectNothingLeft();
}

TEST_P(References, TheEndOfAHandleOnlyEnqueues) {  // O2: it may come under a role
  std::optional<TensorRef> ref = Make(0, 1);
  cluster.scheduler().RunReady();
  const uint64_t sent = cluster.rpc(0).counts().sent;
  ref.reset();
  EXPECT_EQ(cluster.rpc(0).counts().sent, sent);
  ExpectNothingLeft();
  EXPECT_EQ(cluster.rpc(0).counts().sent, sent + 1) << "the drop";
}

TEST_P(References, AResultThatRefersToAFreshValueOfItsCallee) {  // R1: the handler's handle is gone before the reply
  for (size_t from = 0; from < 3; ++from) {
    const auto ref = cluster.Call<TensorRef>(from, 1, "own", int64_t{3});
    cluster.scheduler().RunReady();
    EXPECT_TRUE(ref.to_here().equal(at::ones({3}))) << "asked by rank " << from;
    EXPECT_EQ(ref.is_owner(), from == 1);
  }
  ExpectNothingLeft();
}

TEST_P(References, ThroughThreeHandsAndBackInAResult) {
  {
    const TensorRef ref = Make(0, 1);
    EXPECT_TRUE(cluster.Call<bool>(0, 2, "pass_to", ref, int64_t{1}));  // user, user, owner
    EXPECT_TRUE(cluster.Call<bool>(0, 2, "hold", ref));
    const auto back = cluster.Call<TensorRef>(0, 2, "give_back", int64_t{0});
    EXPECT_TRUE(back.to_here().equal(at::ones({3})));
    const auto own = cluster.Call<TensorRef>(1, 2, "give_back", int64_t{0});
    EXPECT_TRUE(own.is_owner());
    EXPECT_TRUE(own.local_value().equal(at::ones({3})));
  }
  ExpectNothingLeft();
}

TEST_P(References, AFailedCreationComesBackAtEachUse) {
  {
    const TensorRef ref(cluster.Remote(0, 1, "fail", EncodeValue(std::tuple<int64_t>(1))));
    for (int use = 0; use < 2; ++use) {
      try {
        ref.to_here();
        FAIL() << "a value came from a call that failed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kRemote);
        EXPECT_STREQ(error.what(), "no such row");
      }
    }
  }
  ExpectNothingLeft();
}

TEST_P(References, AResultThatCannotBeSharedFailsItsCall) {  // C1: it is answered, not left to its timeout
  for (const int64_t owner : {1, 2}) {
    const Outcome outcome = cluster.CallOutcome(0, 1, "failed_of", EncodeValue(std::tuple<int64_t>(owner)));
    if (owner == 1) {
      EXPECT_TRUE(outcome.ok()) << "the owner shares what failed: each use says so";
    } else {
      ASSERT_FALSE(outcome.ok());
      EXPECT_EQ(outcome.failure().code, ErrorCode::kRemote);
      EXPECT_EQ(outcome.failure().text, "no such row");
    }
  }
  ExpectNothingLeft();
}

TEST_P(References, EveryoneWhoAsksAnOwnerThatHasLeftIsAnswered) {  // C1
  const TensorRef ref = Make(0, 1);
  EXPECT_TRUE(cluster.Call<bool>(0, 2, "hold", ref));
  cluster.scheduler().RunReady();
  cluster.rpc(2).members().Remove(cluster.id(1));
  for (int time = 0; time < 2; ++time) EXPECT_FALSE(held[2].back().confirmed_by_owner());
}

TEST_P(References, AForkOfAnotherWorkerIsRefused) {
  const TensorRef ref = Make(1, 1);
  // The number that the owner itself takes next, as if rank 0 had made it.
  Payload args = rref::EncodeIds({cluster.id(1), 0}, {cluster.id(1), 2}, cluster.id(0));
  const Outcome outcome = cluster.CallOutcome(0, 1, rref::kAddFunction, std::move(args));
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().code, ErrorCode::kInvalid);
  EXPECT_TRUE(cluster.Call<bool>(1, 0, "hold", ref));
}

TEST_P(References, ForcedDropsMakeLaterUsesErrorsAndLeaveNothing) {  // R5
  const TensorRef ref = Make(0, 1);
  EXPECT_TRUE(cluster.Call<bool>(0, 2, "hold", ref));
  cluster.scheduler().RunReady();
  for (size_t rank = 0; rank < 3; ++rank) cluster[rank].references->DropAll();
  cluster.scheduler().RunReady();
  EXPECT_THROW(ref.to_here(), Error);
  EXPECT_THROW(cluster.Call<bool>(0, 2, "hold", ref), Error);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(cluster[rank].references->Leaks().empty());
    EXPECT_EQ(cluster[rank].references->counts().entries, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, References, testing::Range(0, kSeeds));

}  // namespace
}  // namespace gradwire::sim
