// Calls between three workers in one thread: what order, time and the ends of sessions may do to them.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <stdexcept>

#include "rpc/surroundings.h"
#include "sim/cluster.h"

namespace gradwire::sim {
namespace {

constexpr int kSeeds = 200;

std::tuple<int64_t> Args(int64_t value) { return {value}; }

TEST(Calls, ReturnWhatTheFunctionReturns) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Cluster cluster(seed, 3);
    for (size_t rank = 0; rank < 3; ++rank) {
      cluster[rank].functions->Add("scale", [rank](at::Tensor x) { return x.mul(static_cast<int64_t>(rank + 1)); });
    }
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        const auto y = cluster.Call<at::Tensor>(from, to, "scale", at::ones({3}));
        ASSERT_TRUE(y.equal(at::full({3}, static_cast<double>(to + 1)))) << from << " to " << to;
      }
    }
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(cluster.rpc(rank).counts().pending, 0u);
  }
}

TEST(O1, OrderedFunctionsRunInTheOrderOfSending) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Cluster cluster(seed, 2);
    std::vector<int64_t> seen;
    cluster[1].functions->AddHandler("note",
                                     [&](const std::shared_ptr<IncomingCall>& call) {
                                       seen.push_back(std::get<0>(DecodeValue<std::tuple<int64_t>>(call->args())));
                                       call->Reply({});
                                     },
                                     {.is_ordered = true});
    std::vector<int64_t> sent;
    for (int64_t i = 0; i < 20; ++i) {
      cluster.rpc(0).Notify(cluster.id(1), "note", EncodeValue(Args(i)));
      sent.push_back(i);
    }
    cluster.scheduler().RunReady();
    ASSERT_EQ(seen, sent) << "seed " << seed;
  }
}

TEST(Calls, NestToAnyDepthInOneThread) {  // C3
  Cluster cluster(7, 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    cluster[rank].functions->Add("bounce", [&cluster, rank](int64_t left) -> int64_t {
      return left == 0 ? 0 : 1 + cluster.Call<int64_t>(rank, 1 - rank, "bounce", left - 1);
    });
  }
  EXPECT_EQ(cluster.Call<int64_t>(0, 1, "bounce", int64_t{50}), 50);
}

// A future of a call that worker `from` makes of "half" on worker `to`.
Future<double> Half(Cluster& cluster, size_t from, size_t to, double x) {
  auto state = std::make_shared<detail::FutureState>(cluster.rpc(from).executor());
  cluster.rpc(from).Send({.to = cluster.id(to), .function = "half", .args = EncodeValue(std::tuple<double>(x))},
                         [state](Outcome outcome) {
                           if (outcome.ok()) {
                             state->Complete(std::make_shared<double>(DecodeValue<double>(outcome.value())));
                           } else {
                             state->Fail(outcome.failure());
                           }
                         });
  return Future<double>(std::move(state));
}

TEST(C5, WhateverAFunctionThrowsReachesItsCaller) {
  Cluster cluster(13, 2);
  cluster[1].functions->Add("number", [](int64_t) -> bool { throw 42; });
  cluster[1].functions->Add("shapes", [](at::Tensor a) { return at::mm(a, a); });
  const Outcome number = cluster.CallOutcome(0, 1, "number", EncodeValue(Args(1)));
  ASSERT_FALSE(number.ok());
  EXPECT_EQ(number.failure().code, ErrorCode::kRemote);
  EXPECT_EQ(number.failure().worker, "worker1");
  const Outcome shapes = cluster.CallOutcome(0, 1, "shapes", EncodeValue(std::tuple(at::ones({2, 3}))));
  ASSERT_FALSE(shapes.ok());
  EXPECT_EQ(shapes.failure().type_name, "c10::Error");
  EXPECT_EQ(shapes.failure().text.find('\n'), std::string::npos) << "no frames of C++: " << shapes.failure().text;
}

TEST(C6, AFunctionThatReturnsAFutureAnswersWhenItIsDone) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Cluster cluster(seed, 3);
    cluster[2].functions->Add("half", [](double x) {
      if (x < 0) throw std::domain_error("negative");
      return x / 2;
    });
    const Function<double(double)> later = cluster[1].functions->Add("later", [&cluster](double x) {
      return Half(cluster, 1, 2, x).then([](const Future<double>& done) { return done.wait() + 1; });
    });
    const Function<void(double)> nothing = cluster[1].functions->Add("nothing", [&cluster](double x) {
      return Half(cluster, 1, 2, x).then([](const Future<double>& done) { done.wait(); });
    });
    cluster[1].functions->Add("never", [](double) { return Future<double>(); });
    cluster[1].functions->Add("abandoned", [&cluster](double) {
      return Future<double>(std::make_shared<detail::FutureState>(cluster.rpc(1).executor()));
    });
    ASSERT_EQ(cluster.Call<double>(0, 1, later.name, 5.0), 3.5);
    EXPECT_TRUE(cluster.CallOutcome(0, 1, nothing.name, EncodeValue(std::tuple<double>(5.0))).ok());

    const Outcome failed = cluster.CallOutcome(0, 1, "later", EncodeValue(std::tuple<double>(-1.0)));
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.failure().code, ErrorCode::kRemote);
    EXPECT_NE(failed.failure().text.find("negative"), std::string::npos);
    for (const char* name : {"never", "abandoned"}) {
      const Outcome none = cluster.CallOutcome(0, 1, name, EncodeValue(std::tuple<double>(1.0)));
      ASSERT_FALSE(none.ok());
      EXPECT_EQ(none.failure().code, ErrorCode::kInvalid);
    }
    EXPECT_EQ(cluster.rpc(1).counts().serving, 0u);
  }
}

TEST(C6, ALaterAnswerIsMadeUnderTheDeadlineOfItsCall) {
  Cluster cluster(11, 3);
  cluster[2].functions->Add("half", [](double x) { return x / 2; });
  cluster[1].functions->AddHandler("watch", [&](const std::shared_ptr<IncomingCall>& call) {
    Half(cluster, 1, 2, 1).state()->OnDone([&, call] {
      const Surroundings::Scope nothing{Surroundings()};  // as on a thread of the program
      call->Resume([&] {
        EXPECT_TRUE(rpc::CurrentDeadline());
        call->Reply(EncodeValue(1.0));
      });
    });
  });
  EXPECT_TRUE(cluster.CallOutcome(0, 1, "watch", EncodeValue(Args(1)), {std::chrono::milliseconds(500)}).ok());
}

TEST(C1, ACallThatIsNotAnsweredEndsByItsTimeout) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Cluster cluster(seed, 2);
    std::vector<std::shared_ptr<IncomingCall>> kept;
    cluster[1].functions->AddHandler("keep", [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); });
    Outcome outcome = cluster.CallOutcome(0, 1, "keep", EncodeValue(Args(1)), {std::chrono::milliseconds(500)});
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.failure().code, ErrorCode::kTimedOut);
    EXPECT_NE(outcome.failure().text.find("worker1"), std::string::npos);
    EXPECT_NE(outcome.failure().text.find("keep"), std::string::npos);
    for (const auto& call : kept) call->Reply({});  // late: nobody is there, nothing happens
    cluster.scheduler().RunReady();
    EXPECT_EQ(cluster.rpc(0).counts().pending, 0u);
  }
}

TEST(C2, ATimeoutThatIsLongerThanTheClockGoesIsNone) {
  Cluster cluster(5, 2);
  cluster[1].functions->Add("half", [](double x) { return x / 2; });
  const CallOptions longest{std::chrono::milliseconds::max()};
  for (size_t to = 0; to < 2; ++to) {
    cluster[to].functions->Add("one", [&cluster, to](int64_t) {
      return DecodeValue<double>(cluster.CallOutcome(to, 1, "half", EncodeValue(std::tuple(2.0))).value());
    });
    Outcome outcome = cluster.CallOutcome(0, to, "one", EncodeValue(Args(1)), longest);
    ASSERT_TRUE(outcome.ok()) << outcome.failure().text;
    EXPECT_EQ(DecodeValue<double>(outcome.value()), 1.0);
  }
  cluster.rpc(0).set_timeout(std::chrono::milliseconds::max());
  EXPECT_TRUE(cluster.CallOutcome(0, 1, "one", EncodeValue(Args(1))).ok());
}

TEST(C2, AWrittenDeadlineTravelsAndAnExpiredCallIsNotStarted) {
  Cluster cluster(3, 3);
  bool started = false;
  cluster[2].functions->Add("late", [&](int64_t) { started = true; });
  cluster[1].functions->Add("relay", [&](int64_t value) {
    cluster.scheduler().Advance(std::chrono::milliseconds(80));  // the handler takes its time
    cluster.Call<bool>(1, 2, "late", value);
  });
  Outcome outcome = cluster.CallOutcome(0, 1, "relay", EncodeValue(Args(1)), {std::chrono::milliseconds(50)});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.failure().code, ErrorCode::kTimedOut);
  cluster.scheduler().Advance(std::chrono::seconds(1));
  EXPECT_FALSE(started) << "the call inherited a deadline that was over";
}

TEST(C2, AHandlerThatPutACallAsideIsToldThatItIsTooLate) {
  Cluster cluster(3, 2);
  std::vector<std::shared_ptr<IncomingCall>> aside;
  cluster[1].functions->AddHandler("aside", [&](const std::shared_ptr<IncomingCall>& call) { aside.push_back(call); });
  for (const int limit_ms : {50, 500}) {
    rpc::Call call;
    call.to = cluster.id(1);
    call.function = "aside";
    call.args = EncodeValue(Args(1));
    call.options.timeout = std::chrono::milliseconds(limit_ms);
    cluster.rpc(0).Send(std::move(call), [](Outcome) {});
  }
  cluster.scheduler().Advance(std::chrono::milliseconds(80));
  ASSERT_EQ(aside.size(), 2u);
  EXPECT_TRUE(aside[0]->RefuseIfLate());
  ASSERT_FALSE(aside[1]->RefuseIfLate());
  aside[1]->Reply({});
  cluster.scheduler().RunReady();
  EXPECT_EQ(cluster.rpc(1).counts().serving, 0u);
}

TEST(C2, TheDefaultTimeoutDoesNotBindTheCallee) {
  Cluster cluster(3, 3);
  cluster.rpc(0).set_timeout(std::chrono::milliseconds(50));
  bool started = false;
  cluster[2].functions->Add("late", [&](int64_t) {
    started = true;
    return true;
  });
  cluster[1].functions->Add("relay", [&](int64_t value) {
    cluster.scheduler().Advance(std::chrono::milliseconds(80));
    return cluster.Call<bool>(1, 2, "late", value);
  });
  Outcome outcome = cluster.CallOutcome(0, 1, "relay", EncodeValue(Args(1)));
  EXPECT_EQ(outcome.failure().code, ErrorCode::kTimedOut) << "the caller has given up";
  cluster.scheduler().Advance(std::chrono::seconds(1));
  EXPECT_TRUE(started) << "the callee has not";
}

TEST(C5, ErrorsCarryCodeTextTypeAndWorker) {
  Cluster cluster(1, 2);
  cluster[1].functions->Add("fail", [](int64_t) -> int64_t { throw std::out_of_range("no such row"); });
  Outcome failed = cluster.CallOutcome(0, 1, "fail", EncodeValue(Args(1)));
  EXPECT_EQ(failed.failure().code, ErrorCode::kRemote);
  EXPECT_EQ(failed.failure().text, "no such row");
  EXPECT_EQ(failed.failure().type_name, "std::out_of_range");
  EXPECT_EQ(failed.failure().worker, "worker1");

  Outcome unknown = cluster.CallOutcome(0, 1, "nothing", EncodeValue(Args(1)));
  EXPECT_EQ(unknown.failure().code, ErrorCode::kUnknownFunction);
  EXPECT_NE(unknown.failure().text.find("nothing"), std::string::npos);

  Outcome wrong = cluster.CallOutcome(0, 1, "fail", EncodeValue(std::tuple<std::string>("x")));
  EXPECT_EQ(wrong.failure().code, ErrorCode::kInvalid);
}

TEST(C5, ANestedFailureIsTheFunctionsOwnError) {
  Cluster cluster(1, 2);
  cluster[1].functions->Add(
      "outer", [&](int64_t) -> int64_t { throw Error(ErrorCode::kTimedOut, "an inner call took too long"); });
  Outcome outcome = cluster.CallOutcome(0, 1, "outer", EncodeValue(Args(1)));
  EXPECT_EQ(outcome.failure().code, ErrorCode::kRemote) << "this very call has not timed out";
}

// Adds one field to requests or to replies.
class Adds : public rpc::Interceptor {
 public:
  bool Reads(uint16_t tag) const override { return tag == known; }
  void OnSend(rpc::OutgoingCall& call) override {
    if (!to_replies) call.request.extensions.push_back({.tag = tag, .bytes = "x"});
  }
  void OnReply(rpc::ServedCall&, wire::Reply& reply) override {
    if (to_replies) reply.extensions.push_back({.tag = tag, .bytes = "x"});
  }

  uint16_t tag = 9;
  uint16_t known = 0;
  bool to_replies = false;
};

TEST(Calls, AnUnknownRequiredExtensionIsRefusedAndAnOptionalOneIsNot) {
  const auto adds = std::make_shared<Adds>();
  Cluster cluster(1, 2, nullptr, {adds});
  int runs = 0;
  cluster[1].functions->Add("count", [&](int64_t) -> int64_t { return ++runs; });
  EXPECT_EQ(cluster.Call<int64_t>(0, 1, "count", int64_t{0}), 1) << "optional";
  adds->tag = 9 | wire::Extension::kRequired;
  Outcome refused = cluster.CallOutcome(0, 1, "count", EncodeValue(Args(1)));
  EXPECT_EQ(refused.failure().code, ErrorCode::kInvalid);
  EXPECT_NE(refused.failure().text.find("'count'"), std::string::npos) << refused.failure().text;
  EXPECT_NE(refused.failure().text.find("32777"), std::string::npos) << refused.failure().text;
  EXPECT_EQ(refused.failure().worker, "worker1");
  EXPECT_EQ(runs, 1);
  auto kept = cluster.Remote(0, 1, "count", EncodeValue(Args(1)));
  cluster.scheduler().RunReady();
  EXPECT_EQ(runs, 1);
  adds->to_replies = true;
  EXPECT_EQ(cluster.CallOutcome(0, 1, "count", EncodeValue(Args(1))).failure().code, ErrorCode::kInvalid);
  EXPECT_EQ(runs, 2);
  adds->known = adds->tag;
  EXPECT_EQ(cluster.Call<int64_t>(0, 1, "count", int64_t{0}), 3);
}

TEST(O4, WhenASessionEndsItsCallsFailAndSayThatTheyMayHaveRun) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    Cluster cluster(seed, 3);
    std::vector<std::shared_ptr<IncomingCall>> kept;
    cluster[1].functions->AddHandler("keep", [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); });
    cluster[2].functions->Add("same", [](int64_t value) { return value; });
    std::optional<Outcome> outcome;
    rpc::Call call;
    call.to = cluster.id(1);
    call.function = "keep";
    call.args = EncodeValue(Args(1));
    cluster.rpc(0).Send(std::move(call), [&](Outcome o) { outcome.emplace(std::move(o)); });
    cluster.scheduler().RunReady();
    ASSERT_FALSE(outcome);
    cluster.network().Kill(cluster[1].address);
    cluster.scheduler().RunReady();
    ASSERT_TRUE(outcome) << "seed " << seed;
    EXPECT_EQ(outcome->failure().code, ErrorCode::kDisconnected);
    EXPECT_NE(outcome->failure().text.find("worker1"), std::string::npos);
    EXPECT_NE(outcome->failure().text.find("may have run"), std::string::npos);
    EXPECT_EQ(cluster.Call<int64_t>(0, 2, "same", int64_t{5}), 5) << "another pair is not harmed";
  }
}

TEST(C1, StoppingEndsEveryWait) {
  Cluster cluster(5, 2);
  std::vector<std::shared_ptr<IncomingCall>> kept;
  cluster[1].functions->AddHandler("keep", [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); });
  int ended = 0;
  for (int i = 0; i < 5; ++i) {
    rpc::Call call;
    call.to = cluster.id(1);
    call.function = "keep";
    call.args = EncodeValue(Args(i));
    call.options.timeout = std::chrono::milliseconds(0);
    cluster.rpc(0).Send(std::move(call), [&](Outcome outcome) { ended += !outcome.ok(); });
  }
  cluster.rpc(0).Stop("the test stops it");
  cluster.scheduler().RunReady();
  EXPECT_EQ(ended, 5);
  rpc::Call late;
  late.to = cluster.id(1);
  late.function = "keep";
  EXPECT_THROW(cluster.rpc(0).SendAndWait(std::move(late)), Error);
}

TEST(O5, ACallThatFailsBeforeItsSendStepLeavesNothingBehind) {
  Cluster cluster(5, 2);
  rpc::Call call;
  call.to = {9, 9};
  call.function = "keep";
  EXPECT_THROW(cluster.rpc(0).SendAndWait(std::move(call)), Error);
  EXPECT_EQ(cluster.rpc(0).counts(), rpc::Rpc::Counts{});
}

}  // namespace
}  // namespace gradwire::sim
