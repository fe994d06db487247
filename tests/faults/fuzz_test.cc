// What strangers send to the ports of a running job, made of what the job itself has sent: no call fails, and none of
// the job's connections is touched (AUTH).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/hmac.h"
#include "faults/proxied_node.h"
#include "faults/stranger.h"
#include "faults/stream_fuzzer.h"
#include "rpc/half_open.h"
#include "wire/handshake.h"
#include "worker/test_store.h"

namespace gradwire {
namespace {

using faults::Stranger;
using faults::StreamFuzzer;
using wire::FrameKind;

constexpr int kRounds = 100;  // of each kind of attack, on each of the two workers

// Two workers that call each other and themselves, until the test ends. Their recordings are made before.
class Fuzz : public testing::Test {
 protected:
  void SetUp() override {
    const auto store = std::make_shared<TestStore>();
    std::vector<std::thread> starts;
    for (int rank : {0, 1}) nodes.push_back(std::make_unique<faults::ProxiedNode>(rank + 1));
    for (int rank : {0, 1}) {
      starts.emplace_back([this, rank, store] {
        WorkerOptions options{.name = rank ? "b" : "a", .rank = rank, .world_size = 2, .store = store};
        options.functions = std::make_shared<Functions>();
        options.functions->Add("next", [](int64_t n) { return n + 1; });
        options.functions->Add("twice", [](const at::Tensor& t) { return t * 2; });
        nodes[rank]->worker = std::make_unique<Worker>(std::move(options), nodes[rank]->parts);
      });
    }
    for (auto& start : starts) start.join();
    for (const std::string to : {"a", "b"}) {
      for (auto& node : nodes) Call(*node->worker, to, 0);
    }
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([this, i] {
        try {
          for (int64_t n = 0; !enough; ++n) Call(*nodes[i % 2]->worker, i < 2 ? "a" : "b", n);
        } catch (const std::exception& error) {
          std::lock_guard lock(mutex);
          wrong.push_back(error.what());
        }
      });
    }
    for (auto& node : nodes) accepted.push_back(node->transport->proxy().accepted());
  }

  void Call(Worker& worker, const std::string& to, int64_t n) {
    if (worker.rpc_sync<int64_t>(to, "next", std::tuple<int64_t>(n)) != n + 1)
      throw std::runtime_error("next is wrong");
    const at::Tensor t = at::full({n % 8 == 0 ? 50'000 : 10}, static_cast<double>(n), at::kFloat);
    const auto back = worker.rpc_sync<at::Tensor>(to, "twice", std::tuple<at::Tensor>(t));
    if (!back.equal(t * 2)) throw std::runtime_error("twice is wrong");
    calls.fetch_add(2);
  }

  void TearDown() override {
    const uint64_t before = calls;
    while (calls < before + 8 && Unharmed()) std::this_thread::yield();  // it still works
    enough = true;
    for (auto& caller : callers) caller.join();
    EXPECT_TRUE(wrong.empty()) << wrong.front();
    for (size_t i = 0; i < nodes.size(); ++i) {
      EXPECT_EQ(nodes[i]->transport->proxy().cuts(), 0u);
      EXPECT_EQ(nodes[i]->transport->proxy().accepted(), accepted[i]) << "the job had to connect again";
      EXPECT_EQ(nodes[i]->worker->counts().pending_calls, 0u);
    }
    std::vector<std::thread> ends;
    for (auto& node : nodes) ends.emplace_back([&node] { node->worker->shutdown(); });
    for (auto& end : ends) end.join();
    RecordProperty("calls", std::to_string(calls));
  }

  bool Unharmed() {
    std::lock_guard lock(mutex);
    return wrong.empty();
  }

  // `attack` on each worker at the same time, with what was sent to this very worker.
  template <class Attack>
  void OnEachWorker(Attack attack) {
    std::vector<std::thread> attackers;
    for (size_t i = 0; i < nodes.size(); ++i) {
      attackers.emplace_back([&, i] {
        const faults::CuttingProxy& proxy = nodes[i]->transport->proxy();
        try {
          attack(StreamFuzzer(proxy.recordings(), 17 * i + 1), proxy.target());
        } catch (const std::exception& error) {
          std::lock_guard lock(mutex);
          wrong.push_back(std::string("attack: ") + error.what());
        }
      });
    }
    for (auto& attacker : attackers) attacker.join();
  }

  // Sends `make()` again and again, and ends each connection in another way.
  template <class Make>
  void Send(Make make) {
    OnEachWorker([&](StreamFuzzer fuzzer, const std::string& address) {
      std::deque<Stranger> waiting;  // that say no more for now
      for (int round = 0; round < kRounds && Unharmed(); ++round) {
        Stranger stranger(address);
        stranger.Send(make(fuzzer));
        switch (fuzzer.Draw(4)) {
          case 0: stranger.Reset(); break;
          case 1:
            stranger.SayNoMore();
            stranger.ReadAll();
            break;
          case 2: waiting.push_back(std::move(stranger)); break;
          default: break;  // closes
        }
        if (waiting.size() > 20) waiting.pop_front();
      }
      for (Stranger& stranger : waiting) stranger.ReadAll();  // the worker closes them all
    });
  }

  std::vector<std::unique_ptr<faults::ProxiedNode>> nodes;
  std::vector<std::thread> callers;
  std::vector<uint64_t> accepted;
  std::atomic<bool> enough{false};
  std::atomic<uint64_t> calls{0};
  std::mutex mutex;
  std::vector<std::string> wrong;
};

// All of the handshake was right once: the nonce of the worker makes it worthless.
TEST_F(Fuzz, ARecordedHandshakeIsRefused) {
  OnEachWorker([&](StreamFuzzer fuzzer, const std::string& address) {
    for (int round = 0; round < kRounds && Unharmed(); ++round) {
      Stranger stranger(address);
      stranger.Send(fuzzer.Replayed());
      const std::vector<Stranger::Frame> answers = stranger.ReadAll();
      // What the worker did not read any more may have reset the line, and lost its answers.
      if (!answers.empty() && answers[0].header.kind != FrameKind::kChallenge) throw std::runtime_error("no Challenge");
      for (size_t i = 1; i < answers.size(); ++i) {
        if (answers[i].header.kind != FrameKind::kRefuse)
          throw std::runtime_error("the recorded Proof is worth something");
        if (wire::DecodeRefuse(answers[i].body).code != wire::RefuseCode::kKey)
          throw std::runtime_error("refused otherwise");
      }
    }
  });
}

// Who has the Challenge of this very connection, and everything but the key.
TEST_F(Fuzz, AForgedProofIsRefused) {
  std::atomic<int> refused{0};
  OnEachWorker([&](StreamFuzzer fuzzer, const std::string& address) {
    for (int round = 0; round < kRounds && Unharmed(); ++round) {
      const std::vector<std::string>& recorded = fuzzer.FramesOfMaker();
      Stranger stranger(address);
      stranger.Send(recorded[0]);
      Stranger::Frame challenge;
      if (!stranger.Read(challenge) || challenge.header.kind != FrameKind::kChallenge) {
        throw std::runtime_error("a right Hello has no Challenge");
      }
      const std::string hello = recorded[0].substr(wire::FrameHeader::kSize);
      wire::Proof proof = wire::DecodeProof(std::string_view(recorded[1]).substr(wire::FrameHeader::kSize));
      proof.number += fuzzer.Draw(3);
      const std::string guess = fuzzer.Draw(2) == 0 ? "" : "gradwire";
      if (fuzzer.Draw(3) > 0) proof.mac = wire::MacOfProof(guess, hello, challenge.body, proof.number);
      const std::string body = wire::Encode(proof);
      std::string frame;
      wire::EncodeHeader({.kind = FrameKind::kProof, .body_size = static_cast<uint32_t>(body.size())}, frame);
      stranger.Send(frame + body);
      for (const Stranger::Frame& answer : stranger.ReadAll()) {
        if (answer.header.kind != FrameKind::kRefuse ||
            wire::DecodeRefuse(answer.body).code != wire::RefuseCode::kKey) {
          throw std::runtime_error("a forged Proof is worth something");
        }
        refused.fetch_add(1);
      }
    }
  });
  EXPECT_EQ(refused, 2 * kRounds);
}

TEST_F(Fuzz, WhatTheOtherSideHadSent) {
  Send([](StreamFuzzer& fuzzer) { return fuzzer.Reflected(); });
}

TEST_F(Fuzz, CutStreams) {
  Send([](StreamFuzzer& fuzzer) { return fuzzer.Cut(); });
}

TEST_F(Fuzz, RepeatedFrames) {
  Send([](StreamFuzzer& fuzzer) { return fuzzer.Repeated(); });
}

TEST_F(Fuzz, MutatedStreams) {
  Send([](StreamFuzzer& fuzzer) { return fuzzer.Mutated(); });
}

TEST_F(Fuzz, Noise) {
  Send([](StreamFuzzer& fuzzer) { return fuzzer.Random(); });
}

// Each byte comes alone, and the next one when the job has made some more calls.
TEST_F(Fuzz, SlowStreams) {
  OnEachWorker([&](StreamFuzzer fuzzer, const std::string& address) {
    std::vector<std::pair<Stranger, std::string>> slow;
    for (int i = 0; i < 50; ++i)
      slow.emplace_back(Stranger(address), i % 2 == 0 ? fuzzer.Replayed() : fuzzer.Mutated());
    for (size_t at = 0; at < 300 && Unharmed(); ++at) {
      for (auto& [stranger, stream] : slow) {
        if (at < stream.size()) stranger.Send({&stream[at], 1});
      }
      const uint64_t before = calls;
      while (calls < before + 4 && Unharmed()) std::this_thread::yield();
    }
    for (auto& [stranger, stream] : slow) stranger.ReadAll();
  });
}

// More at once than a worker keeps: the oldest make room, and the job goes on.
TEST_F(Fuzz, AFloodOfConnections) {
  OnEachWorker([&](StreamFuzzer fuzzer, const std::string& address) {
    for (int round = 0; round < 3 && Unharmed(); ++round) {
      std::vector<Stranger> flood;
      for (size_t i = 0; i < rpc::HalfOpen::kMost + 50; ++i) {
        flood.emplace_back(address);
        if (i % 3 == 1) flood.back().Send(fuzzer.FramesOfMaker()[0]);
        if (i % 3 == 2) flood.back().Send(fuzzer.Cut());
      }
      flood.front().ReadAll();  // closed to make room
      if (round == 2) {
        for (Stranger& stranger : flood) stranger.ReadAll();
      }
    }
  });
}

}  // namespace
}  // namespace gradwire
