// WorkerList of one process, joined by TCP and a file: their start, their end, and what is refused.
#include "gradwire/worker.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/event.h"
#include "base/test_failure.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

std::string NewStore() {
  static int stores = 0;
  return "file://" + testing::TempDir() + "worker_" + std::to_string(getpid()) + "_" + std::to_string(stores++);
}

WorkerOptions OptionsOf(int rank, int world_size, const std::string& store) {
  return {.name = "worker" + std::to_string(rank), .rank = rank, .world_size = world_size, .init_method = store};
}

uint16_t FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

using WorkerList = std::vector<std::unique_ptr<Worker>>;

void OnAll(const WorkerList& workers, const std::function<void(Worker&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& worker : workers) threads.emplace_back([&] { body(*worker); });
  for (auto& thread : threads) thread.join();
}

WorkerList Start(int count, const std::string& store, const std::function<void(WorkerOptions&)>& change = {}) {
  WorkerList workers(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      WorkerOptions options = OptionsOf(rank, count, store);
      options.functions = std::make_shared<Functions>();
      options.functions->Add("rank", [rank] { return int64_t{rank}; });
      if (change) change(options);
      workers[rank] = std::make_unique<Worker>(std::move(options));
    });
  }
  for (auto& thread : threads) thread.join();
  return workers;
}

int64_t RankOf(Worker& from, const std::string& to) { return from.rpc_sync<int64_t>(to, "rank", std::tuple<>()); }

TEST(WorkerTest, KnowsItsGroup) {
  const WorkerList workers = Start(3, NewStore());
  Worker& worker = *workers[1];
  EXPECT_EQ(worker.info().name, "worker1");
  ASSERT_EQ(worker.worker_infos().size(), 3u);
  EXPECT_EQ(worker.worker_info(2).name, "worker2");
  for (int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(RankOf(worker, "worker" + std::to_string(rank)), rank);
  EXPECT_EQ(FailureOf([&] { RankOf(worker, "nobody"); }).code, ErrorCode::kUnknownWorker);
  OnAll(workers, [](Worker& each) { each.shutdown(); });
}

TEST(WorkerTest, AResultOfAnotherTypeIsAnErrorThatNamesItsSource) {
  const WorkerList workers = Start(2, NewStore());
  Worker& worker = *workers[0];
  const std::string expected = "the result of 'rank' on worker 'worker1': expected a string, got an int";
  const auto text = [&](const std::function<void()>& use) { return FailureOf(use).text; };
  EXPECT_EQ(text([&] { worker.rpc_sync<std::string>("worker1", "rank", std::tuple<>()); }), expected);
  EXPECT_EQ(text([&] { worker.rpc_async<std::string>("worker1", "rank", std::tuple<>()).wait(); }), expected);
  EXPECT_EQ(text([&] { worker.remote<std::string>("worker1", "rank", std::tuple<>()).to_here(); }),
            "the value on worker 'worker1': expected a string, got an int");
  std::array<std::string, 2> failures;
  OnAll(workers, [&](Worker& each) {
    const bool first = each.info().id == 0;
    failures[first ? 0 : 1] = text([&] { first ? (void)each.all_gather(1) : (void)each.all_gather(std::string("a")); });
  });
  EXPECT_EQ(failures[0], "what worker 'worker1' has passed: expected an int, got a string");
  EXPECT_EQ(failures[1], "what worker 'worker0' has passed: expected a string, got an int");
  OnAll(workers, [](Worker& each) { each.shutdown(); });
}

TEST(WorkerTest, FunctionsOfTheLibraryItselfAreNotForPrograms) {
  const WorkerList workers = Start(2, NewStore());
  for (const char* name : {"group.arrive", "autograd.mark"}) {
    const Failure failure = FailureOf([&] { workers[0]->rpc_sync<void>("worker1", name, std::tuple<>()); });
    EXPECT_EQ(failure.code, ErrorCode::kInvalid) << name;
    EXPECT_NE(failure.text.find(name), std::string::npos) << failure.text;
  }
  OnAll(workers, [](Worker& each) { each.shutdown(); });
}

TEST(WorkerTest, M2_WhatAProgramCallsInternalIsWaitedForAllTheSame) {
  const WorkerList workers = Start(2, NewStore(), [](WorkerOptions& options) {
    options.functions->Add("odd", [] { return int64_t{7}; }, {.is_internal = true});
  });
  EXPECT_EQ(workers[0]->rpc_sync<int64_t>("worker1", "odd", std::tuple<>()), 7);
  OnAll(workers, [](Worker& each) { each.shutdown(true, std::chrono::seconds(30)); });  // throws when it waits in vain
}

TEST(WorkerTest, M4_AGroupMayStartAgainOnOneStore) {
  const std::string store = NewStore();
  for (int round = 0; round < 3; ++round) {
    const WorkerList workers = Start(2, store);
    EXPECT_EQ(RankOf(*workers[0], "worker1"), 1);
    OnAll(workers, [](Worker& each) { each.shutdown(); });
  }
}

TEST(WorkerTest, M2_ShutdownWaitsForAllAndServesMeanwhile) {
  const WorkerList workers = Start(3, NewStore());
  std::atomic<bool> ended{false};
  std::thread server([&] {
    workers[0]->shutdown();
    ended = true;
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(RankOf(*workers[1], "worker0"), 0);
  EXPECT_FALSE(ended);
  std::thread other([&] { workers[2]->shutdown(); });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(RankOf(*workers[1], "worker0") + RankOf(*workers[1], "worker2"), 2);
  EXPECT_FALSE(ended);
  workers[1]->shutdown();
  server.join();
  other.join();
  EXPECT_TRUE(ended);
}

TEST(WorkerTest, M2_ATimeoutNamesWhoIsMissingAndEndsTheWorker) {
  const WorkerList workers = Start(2, NewStore());
  const Failure failure = FailureOf([&] { workers[0]->shutdown(true, milliseconds(50)); });
  EXPECT_EQ(failure.code, ErrorCode::kTimedOut);
  EXPECT_NE(failure.text.find("worker1"), std::string::npos) << failure.text;
  EXPECT_EQ(FailureOf([&] { RankOf(*workers[0], "worker1"); }).code, ErrorCode::kInvalid);
  workers[0]->shutdown();  // idempotent
}

TEST(WorkerTest, M2_ATimeoutNamesTheWorkThatGoesOn) {
  for (const size_t impatient : {0, 1}) {  // the leader, a follower
    Event running, go_on;
    const WorkerList workers = Start(2, NewStore(), [&](WorkerOptions& options) {
      options.functions->Add("block", [&] {
        running.Set();
        go_on.Wait();
      });
    });
    const std::string callee = workers[1 - impatient]->info().name, caller = workers[impatient]->info().name;
    const Future<void> blocked = workers[impatient]->rpc_async<void>(callee, "block", std::tuple<>());
    running.Wait();
    std::thread patient([&] { workers[1 - impatient]->shutdown(); });
    const Failure failure = FailureOf([&] { workers[impatient]->shutdown(true, milliseconds(300)); });
    EXPECT_EQ(failure.code, ErrorCode::kTimedOut);
    EXPECT_NE(failure.text.find(": " + callee + " runs 'block' for " + caller + " since "), std::string::npos)
        << failure.text;
    go_on.Set();
    patient.join();
  }
}

TEST(WorkerTest, C5_AnExceptionOfCppIsToldWithItsFunction) {
  const WorkerList workers = Start(2, NewStore(), [](WorkerOptions& options) {
    options.functions->Add("fail", []() -> int64_t { throw std::out_of_range("no such row"); });
  });
  const Failure failure = FailureOf([&] { workers[0]->rpc_sync<int64_t>("worker1", "fail", std::tuple<>()); });
  EXPECT_EQ(failure.code, ErrorCode::kRemote);
  EXPECT_EQ(failure.text, "no such row");
  EXPECT_EQ(failure.worker, "worker1");
  EXPECT_EQ(failure.traceback, "std::out_of_range thrown by 'fail'");
  OnAll(workers, [](Worker& each) { each.shutdown(); });
}

TEST(WorkerTest, M2_AFunctionOfTheWorkerCannotEndIt) {
  Worker* served = nullptr;
  Worker* other = nullptr;
  const WorkerList workers = Start(2, NewStore(), [&](WorkerOptions& options) {
    options.functions->Add("end", [&](bool graceful) { served->shutdown(graceful); });
    options.functions->Add("end_other", [&] { other->shutdown(false); });
  });
  served = workers[1].get();
  other = workers[0].get();
  for (const bool graceful : {true, false}) {
    const Failure failure =
        FailureOf([&] { workers[0]->rpc_sync<void>("worker1", "end", std::tuple<bool>(graceful)); });
    EXPECT_EQ(failure.code, ErrorCode::kInvalid);
    EXPECT_NE(failure.text.find("'worker1' cannot be shut down by a function that it runs"), std::string::npos)
        << failure.text;
  }
  const auto callback = workers[1]->rpc_async<int64_t>("worker0", "rank", std::tuple<>()).then([&](const auto&) {
    served->shutdown(false);
  });
  EXPECT_EQ(FailureOf([&] { callback.wait(); }).code, ErrorCode::kInvalid);
  EXPECT_EQ(RankOf(*workers[0], "worker1"), 1) << "it lives";
  // Another one in its process may be ended there.
  workers[1]->rpc_sync<void>("worker1", "end_other", std::tuple<>());
  EXPECT_EQ(FailureOf([&] { RankOf(*workers[0], "worker1"); }).code, ErrorCode::kInvalid);
  workers[1]->shutdown();
}

TEST(WorkerTest, M3_AWorkerThatGoesEndsTheCallsToIt) {
  std::vector<std::shared_ptr<IncomingCall>> kept;  // not by the handler: a call keeps the table that holds it
  WorkerList workers = Start(2, NewStore(), [&](WorkerOptions& options) {
    if (options.rank != 0) return;
    options.functions->AddHandler("never", [&](const std::shared_ptr<IncomingCall>& call) { kept.push_back(call); });
  });
  EXPECT_EQ(RankOf(*workers[1], "worker0"), 0);
  const Future<void> lost = workers[1]->rpc_async<void>("worker0", "never", std::tuple<>());
  EXPECT_EQ(RankOf(*workers[1], "worker0"), 0);
  workers[0].reset();
  kept.clear();
  const Failure failure = FailureOf([&] { lost.wait(); });
  EXPECT_EQ(failure.code, ErrorCode::kDisconnected);
  EXPECT_NE(failure.text.find("worker0"), std::string::npos) << failure.text;
}

TEST(WorkerTest, UsesAfterShutdownAreClearErrors) {
  const WorkerList workers = Start(1, NewStore());
  Worker& worker = *workers[0];
  worker.shutdown();
  for (const std::function<void()>& use :
       {std::function<void()>([&] { RankOf(worker, "worker0"); }),
        std::function<void()>([&] { worker.rpc_async<int64_t>("worker0", "rank", std::tuple<>()).wait(); }),
        std::function<void()>([&] { worker.remote<int64_t>("worker0", "rank", std::tuple<>()).to_here(); })}) {
    const Failure failure = FailureOf(use);
    EXPECT_EQ(failure.code, ErrorCode::kInvalid) << failure.text;
    EXPECT_NE(failure.text.find("worker0"), std::string::npos) << failure.text;
  }
}

TEST(WorkerTest, BadOptionsAreRefusedBeforeAnybodyIsMet) {
  const auto refusal = [](const std::function<void(WorkerOptions&)>& change) {
    WorkerOptions options = OptionsOf(0, 1, NewStore());
    change(options);
    const Failure failure = FailureOf([&] { Worker worker(std::move(options)); });
    EXPECT_EQ(failure.code, ErrorCode::kInvalid) << failure.text;
    return failure.text;
  };
  EXPECT_NE(refusal([](WorkerOptions& o) { o.name = "a b"; }).find("'a b'"), std::string::npos);
  EXPECT_NE(refusal([](WorkerOptions& o) { o.rank = 1; }).find("rank 1"), std::string::npos);
  EXPECT_NE(refusal([](WorkerOptions& o) { o.world_size = -1; }).find("world_size"), std::string::npos);
  EXPECT_NE(refusal([](WorkerOptions& o) { o.num_worker_threads = 0; }).find("num_worker_threads"), std::string::npos);
  EXPECT_NE(refusal([](WorkerOptions& o) { o.init_method = "http://x"; }).find("http://x"), std::string::npos);
  EXPECT_NE(refusal([](WorkerOptions& o) { o.host = "no.such.host.invalid"; }).find("no.such.host.invalid"),
            std::string::npos);
}

TEST(WorkerTest, TheOneThatServesTheStoreNamesWhoIsMissing) {
  WorkerOptions options = OptionsOf(0, 3, "tcp://127.0.0.1:" + std::to_string(FreePort()));
  options.init_timeout = milliseconds(300);
  const Failure failure = FailureOf([&] { Worker worker(std::move(options)); });
  EXPECT_EQ(failure.code, ErrorCode::kTimedOut) << failure.text;
  EXPECT_NE(failure.text.find("missing: rank 1, 2"), std::string::npos) << failure.text;
}

TEST(WorkerTest, AStoreThatNobodyServesEndsByTheInitLimit) {
  WorkerOptions options = OptionsOf(1, 2, "tcp://127.0.0.1:1");  // nobody listens on port 1
  options.init_timeout = milliseconds(300);
  const auto begin = std::chrono::steady_clock::now();
  const Failure failure = FailureOf([&] { Worker worker(std::move(options)); });
  EXPECT_EQ(failure.code, ErrorCode::kUnreachable) << failure.text;
  EXPECT_NE(failure.text.find("127.0.0.1:1"), std::string::npos) << failure.text;
  EXPECT_EQ(failure.text.find("frame #"), std::string::npos) << failure.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace gradwire
