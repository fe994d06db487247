// Connections of a loaded pair are cut again and again: nothing is lost, nothing runs twice, nobody notices (O3).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "faults/proxied_node.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

class Cuts : public testing::Test {
 protected:
  void SetUp() override {
    const auto store = std::make_shared<TestStore>();
    std::vector<std::thread> starts;
    for (int rank : {0, 1}) nodes.push_back(std::make_unique<faults::ProxiedNode>(rank + 1));
    for (int rank : {0, 1}) {
      starts.emplace_back([this, rank, store] {
        WorkerOptions options{.name = rank ? "b" : "a", .rank = rank, .world_size = 2, .store = store};
        options.functions = std::make_shared<Functions>();
        options.functions->Add("count", [this](int64_t n) {
          runs.fetch_add(1);
          return n + 1;
        });
        options.functions->Add("twice", [](const at::Tensor& t) { return t * 2; });
        nodes[rank]->worker = std::make_unique<Worker>(std::move(options), nodes[rank]->parts);
      });
    }
    for (auto& start : starts) start.join();
  }
  void TearDown() override {
    std::vector<std::thread> ends;
    for (auto& node : nodes) ends.emplace_back([&node] { node->worker->shutdown(); });
    for (auto& end : ends) end.join();
  }

  std::atomic<int64_t> runs{0};
  std::vector<std::unique_ptr<faults::ProxiedNode>> nodes;
};

TEST_F(Cuts, OfALoadedPairLoseNothing) {
  constexpr uint64_t kCuts = 200;
  std::atomic<bool> enough{false};
  std::atomic<int64_t> counted{0};
  std::vector<std::string> wrong[4];
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      Worker& worker = *nodes[i % 2]->worker;
      const std::string other = i % 2 ? "a" : "b";
      for (int64_t n = 0; !enough; ++n) {
        try {
          if (i < 2) {
            if (worker.rpc_sync<int64_t>(other, "count", std::tuple<int64_t>(n)) != n + 1) wrong[i].push_back("count");
            counted.fetch_add(1);
          } else {
            // Some in the message, some in pieces behind it, some without memory at first.
            const int64_t size = n % 3 == 0 ? 5'000'000 : n % 3 == 1 ? 300'000 : 10;
            const at::Tensor t = at::full({size}, static_cast<double>(n), at::kFloat);
            const auto back = worker.rpc_sync<at::Tensor>(other, "twice", std::tuple<at::Tensor>(t));
            if (!back.equal(t * 2)) wrong[i].push_back("twice of " + std::to_string(size));
          }
        } catch (const Error& error) {
          wrong[i].push_back(error.what());
          return;
        }
      }
    });
  }
  // The next cut comes when bytes have flowed since the last one: after a number that falls anywhere in a frame.
  std::minstd_rand random(7);
  const auto cuts = [&] { return nodes[0]->transport->proxy().cuts() + nodes[1]->transport->proxy().cuts(); };
  for (uint64_t done = cuts(); done < kCuts; done = cuts()) {
    for (auto& node : nodes) {
      node->transport->proxy().CutAfter(std::uniform_int_distribution<uint64_t>(1, 2'000'000)(random));
    }
    while (cuts() == done && (wrong[0].empty() && wrong[1].empty() && wrong[2].empty() && wrong[3].empty())) {
      std::this_thread::yield();
    }
    if (cuts() == done) break;  // a call has failed
  }
  enough = true;
  for (auto& caller : callers) caller.join();
  for (const auto& of_caller : wrong) EXPECT_TRUE(of_caller.empty()) << of_caller.front();
  EXPECT_GE(cuts(), kCuts);
  EXPECT_EQ(runs.load(), counted.load()) << "each call ran once";
  for (const auto& node : nodes) EXPECT_EQ(node->worker->counts().pending_calls, 0u);
}

}  // namespace
}  // namespace gradwire
