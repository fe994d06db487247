// Faults: what injected failures and delays do to calls and references, and that nothing is left of them.
#include <gtest/gtest.h>

#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;

Payload Five() { return EncodeValue(std::tuple<int64_t>(5)); }

std::shared_ptr<Faults> Of(Fault fault) { return std::make_shared<Faults>(std::vector<Fault>{std::move(fault)}); }

class FaultsTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Cluster> Start(Fault fault) {
    auto cluster = std::make_unique<Cluster>(GetParam(), 2, Of(std::move(fault)));
    for (size_t rank = 0; rank < 2; ++rank) {
      (*cluster)[rank].functions->Add("math.same", [this](int64_t value) {
        ++runs;
        return value;
      });
    }
    return cluster;
  }
  static void ExpectNothingLeft(Cluster& cluster) {  // R2
    cluster.scheduler().RunReady();
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(cluster[rank].references->counts().entries, 0u) << "rank " << rank;
      EXPECT_EQ(cluster.rpc(rank).counts().pending, 0u);
      EXPECT_EQ(cluster.rpc(rank).counts().serving, 0u);
    }
  }

  int runs = 0;
};

TEST_P(FaultsTest, AFailedCallIsNeverSentAndTheNextOneWorks) {  // O5
  const auto cluster = Start({.function = "math.*", .failures = 2});
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = cluster->CallOutcome(0, 1, "math.same", Five());
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.failure().code, ErrorCode::kUnreachable);
  }
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(cluster->rpc(0).counts(), rpc::Rpc::Counts{});
  EXPECT_EQ(cluster->Call<int64_t>(0, 1, "math.same", int64_t{5}), 5);
  EXPECT_EQ(runs, 1);
}

TEST_P(FaultsTest, AFailedCreationTakesNoIdAndSaysSoAtEachUse) {  // O5
  for (size_t owner = 0; owner < 2; ++owner) {
    const auto cluster = Start({.function = "math.same", .remote = true, .failures = 1});
    {
      const RRef<int64_t> ref(cluster->Remote(0, owner, "math.same", Five()));
      cluster->scheduler().RunReady();
      for (int use = 0; use < 2; ++use) {
        try {
          ref.to_here();
          ADD_FAILURE() << "owner " << owner;
        } catch (const Error& error) {
          EXPECT_NE(error.failure().text.find("RRef creation"), std::string::npos) << error.what();
        }
      }
      for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ((*cluster)[rank].references->counts().entries, 0u);
    }
    EXPECT_EQ(cluster->Call<int64_t>(0, owner, "math.same", int64_t{5}), 5) << "only `remote` fails";
    ExpectNothingLeft(*cluster);
  }
}

TEST_P(FaultsTest, AFailedNotificationIsSentAgain) {  // R2: no drop is lost
  const auto cluster = Start({.function = "rref.drop", .failures = 3});
  {
    const RRef<int64_t> ref(cluster->Remote(0, 1, "math.same", Five()));
    EXPECT_EQ(ref.to_here(), 5);
  }
  ExpectNothingLeft(*cluster);
}

TEST_P(FaultsTest, ADelayedCreationRegistersAtOnceAndItsTimeoutIsTheCallersMatter) {  // C2, O1
  for (size_t owner = 0; owner < 2; ++owner) {
    const auto cluster = Start({.function = "math.same", .remote = true, .delay = milliseconds(2000)});
    {
      const RRef<int64_t> ref((*cluster)[0].references->Remote(cluster->rpc(owner).self(), "math.same", Five(),
                                                               {.timeout = milliseconds(1)}));
      cluster->scheduler().Advance(milliseconds(100));
      EXPECT_THROW(ref.handle()->creation().wait(), Error);
      try {
        ref.to_here();
        ADD_FAILURE() << "owner " << owner;
      } catch (const Error& error) {
        EXPECT_NE(error.failure().text.find("RRef creation"), std::string::npos) << error.what();
      }
      EXPECT_EQ((*cluster)[owner].references->counts().entries, 1u) << "registered before the delay";
      EXPECT_EQ(cluster->rpc(owner).counts().serving, 1u) << "a shutdown waits for it (M2)";
      cluster->scheduler().Advance(milliseconds(3000));
      EXPECT_EQ(runs, 0) << "its deadline was over (C2)";
    }
    ExpectNothingLeft(*cluster);
  }
}

TEST_P(FaultsTest, ADelayHoldsBackOnlyWhatItNames) {
  const auto cluster = Start({.function = "math.same", .delay = milliseconds(1500)});
  (*cluster)[1].functions->Add("other", [](int64_t value) { return value; });
  const Outcome late = cluster->CallOutcome(0, 1, "math.same", Five(), {milliseconds(1000)});
  EXPECT_EQ(late.failure().code, ErrorCode::kTimedOut);
  const TimePoint begin = cluster->scheduler().Now();
  EXPECT_EQ(cluster->Call<int64_t>(0, 1, "other", int64_t{7}), 7);
  EXPECT_EQ(cluster->scheduler().Now(), begin);
  EXPECT_EQ(cluster->Call<int64_t>(0, 1, "math.same", int64_t{5}), 5);
  EXPECT_GE(cluster->scheduler().Now() - begin, milliseconds(1500));
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultsTest, testing::Range(0, 50));

}  // namespace
}  // namespace gradwire::sim
