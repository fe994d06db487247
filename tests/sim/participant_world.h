// The state that the exploration of backward passes visits: real tables, the calls between them, and work under way.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/pass_table_inl.h"

namespace gradwire::sim {

inline constexpr int kPassWorkers = 3, kPasses = 2;
inline constexpr const char* kPassNames[kPassWorkers] = {"A", "B", "C"};

inline WorkerId PassWorker(int number) { return {static_cast<uint32_t>(number), 0}; }
inline int NumberOfWorker(WorkerId id) { return static_cast<int>(id.rank); }

// Messages of the graph by number; those of the roots are 0 and 1, by pass.
using Mask = uint16_t;
inline Mask Bit(int number) { return static_cast<Mask>(1 << number); }

enum class CallKind : uint8_t { kMark, kRun, kCommit, kAbort, kGradients };
enum class Why : uint8_t { kFine, kLost, kUnreachable, kThrown, kRefused, kInterrupted, kReleased, kClosed, kOther };

// A call that is not over on both sides.
struct OpenCall {
  CallKind kind = CallKind::kMark;
  int8_t from = 0, to = 0;
  int8_t pass = 0;
  int8_t walk = 0;      // kMark: the caller's walk
  Mask messages = 0;    // kMark, kGradients
  Why why = Why::kFine;  // kAbort
  bool is_waited_for = true, may_answer = true;
};

struct Sent {
  int8_t call = 0;
  bool is_answer = false;
  Why why = Why::kFine;  // of an answer
  Mask workers = 0;      // of the answer to a mark

  void AppendTo(std::string& key) const {
    key.push_back(static_cast<char>(call << 1 | (is_answer ? 1 : 0)));
    key.push_back(static_cast<char>(static_cast<int>(why) << 4 | workers));
  }
};

// Work of one worker that takes its time.
enum class WorkKind : uint8_t { kWalk, kArrive, kRun, kAddUp, kBeginCommit, kJoin, kJoinOwn, kFailedCall };
struct Work {
  WorkKind kind = WorkKind::kWalk;
  int8_t pass = 0;
  int8_t number = 0;  // kWalk: the mark; kArrive, kRun: the message; kBeginCommit, kJoin, kFailedCall: the call
  Mask entries = 0;   // kWalk
  auto operator<=>(const Work&) const = default;
};

// What Participant holds of one pass on one worker.
struct Graph {
  Mask counted = 0, reached = 0, ran = 0, fired = 0;
  bool added_up = false;
  uint8_t joined = 0;
};

template <class Rules>
struct PassState {
  using Table = autograd::BasicPassTable<Rules>;

  // A table and its canonical bytes, shared by all states in which it is the same one.
  struct Node {
    Table table;
    std::string encoding;
  };
  std::array<std::shared_ptr<const Node>, kPassWorkers> tables;
  std::array<std::array<std::vector<Sent>, kPassWorkers>, kPassWorkers> channels;  // [from][to], oldest first
  std::map<int8_t, OpenCall> calls;
  std::array<std::vector<Work>, kPassWorkers> work;  // sorted
  std::array<std::array<Graph, kPassWorkers>, kPasses> graphs{};
  std::array<bool, kPassWorkers> gone{}, closed{}, poisoned{};
  std::array<std::array<bool, kPassWorkers>, kPassWorkers> broken{}, noticed{};
  struct Backward {
    bool begun = false, over = false, left = false;
    Why why = Why::kFine;
  };
  std::array<Backward, kPasses> backwards;
  // Used of the bounds.
  uint8_t deaths = 0, closes = 0, breaks = 0, refusals = 0, node_failures = 0, interrupts = 0, releases = 0;

  PassState() {
    for (int w = 0; w < kPassWorkers; ++w) Set(w, Table(PassWorker(w)));
  }

  const Table& table(int w) const { return tables[w]->table; }

  // Runs one event on a copy.
  template <class TableEvent>
  auto Step(int w, TableEvent event) {
    Table next = table(w);
    auto result = event(next);
    Set(w, std::move(next));
    return result;
  }

  void Set(int w, Table table) {
    std::string encoding = table.Encoding();
    tables[w] = std::make_shared<const Node>(Node{std::move(table), std::move(encoding)});
  }

  void Add(int w, Work one) {
    auto& all = work[w];
    all.insert(std::upper_bound(all.begin(), all.end(), one), one);
  }

  // Equal exactly for equal states.
  std::string Key() const {
    std::string key;
    key.reserve(300);
    for (const auto& node : tables) {
      key.push_back(static_cast<char>(node->encoding.size()));
      key += node->encoding;
    }
    for (const auto& to_all : channels) {
      for (const auto& channel : to_all) {
        key.push_back(static_cast<char>(channel.size()));
        for (const Sent& sent : channel) sent.AppendTo(key);
      }
    }
    for (const auto& [number, call] : calls) {
      const auto put = [&key](int value) { key.push_back(static_cast<char>(value)); };
      put(number);
      put(static_cast<int>(call.kind) << 4 | call.from << 2 | call.to);
      put(call.pass << 5 | (call.is_waited_for ? 16 : 0) | (call.may_answer ? 8 : 0));
      put(call.walk);
      put(call.messages);
      put(static_cast<int>(call.why));
    }
    for (const auto& all : work) {
      key.push_back(static_cast<char>(128 + all.size()));
      for (const Work& one : all) {
        key.push_back(static_cast<char>(static_cast<int>(one.kind) << 1 | one.pass));
        key.push_back(static_cast<char>(one.number));
        key.push_back(static_cast<char>(one.entries));
      }
    }
    for (const auto& of_pass : graphs) {
      for (const Graph& graph : of_pass) {
        key.push_back(static_cast<char>(graph.counted));
        key.push_back(static_cast<char>(graph.reached));
        key.push_back(static_cast<char>(graph.ran));
        key.push_back(static_cast<char>(graph.fired));
        key.push_back(static_cast<char>(graph.joined << 1 | (graph.added_up ? 1 : 0)));
      }
    }
    for (int w = 0; w < kPassWorkers; ++w) {
      int bits = (gone[w] ? 1 : 0) | (closed[w] ? 2 : 0) | (poisoned[w] ? 4 : 0);
      for (int p = 0; p < kPassWorkers; ++p) bits = bits << 2 | (broken[w][p] ? 1 : 0) | (noticed[w][p] ? 2 : 0);
      key.push_back(static_cast<char>(bits));
      key.push_back(static_cast<char>(bits >> 8));
    }
    for (const Backward& one : backwards) {
      key.push_back(static_cast<char>((one.begun ? 1 : 0) | (one.over ? 2 : 0) | (one.left ? 4 : 0) |
                                      static_cast<int>(one.why) << 3));
    }
    key.push_back(static_cast<char>(deaths | closes << 1 | breaks << 2 | refusals << 3 | node_failures << 4 |
                                    interrupts << 5 | releases << 6));
    return key;
  }
};

}  // namespace gradwire::sim
