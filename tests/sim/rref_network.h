// The state that the exploration of the RRef protocol visits: real tables, and the messages between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "rref/owner_table.h"
#include "rref/user_table.h"
#include "rref_rules.h"

namespace gradwire::sim {

// Workers by number: the owner, and three users.
inline constexpr int kOwner = 0, kFirstUser = 1, kWorkers = 4, kValues = 2;
inline constexpr const char* kWorkerNames[kWorkers] = {"O", "U", "V", "W"};

inline WorkerId Worker(int number) { return {static_cast<uint32_t>(number), 0}; }
inline int NumberOf(WorkerId id) { return static_cast<int>(id.rank); }

enum class Kind : uint8_t {
  kCreate,
  kCreateReply,
  kAdd,
  kDrop,
  kArgument,  // a message to the owner that carries the reference
  kGive,      // a message to a user that carries it
  kFetch,
  kFetchReply,
  kConfirm,
  kConfirmReply,
  kAsk,     // Reconcile
  kAnswer,  // its answer
  kMembers  // the owner to itself: who is in the group
};

// How a creation or a fetch ended.
enum class Ended : uint8_t { kValue, kFailed, kGone };

struct Message {
  Kind kind;
  uint8_t value;                         // 0 or 1
  ForkId fork;                           // none for kArgument, kFetch, kFetchReply, kAsk and kAnswer
  uint8_t other = 0;                     // kAdd: the holder; kAsk, kAnswer: about whom; other replies: an Ended
  std::array<uint8_t, kValues> gifts{};  // kAnswer: numbers of forks of each value, a bit each

  // Two bytes, or four: the explored numbers are small.
  void AppendTo(std::string& key) const {
    key.push_back(static_cast<char>(static_cast<int>(kind) << 4 | value << 3 | other));
    key.push_back(static_cast<char>(NumberOf(fork.creator) << 6 | static_cast<int>(fork.number)));
    if (kind == Kind::kAnswer) {
      for (const uint8_t held : gifts) key.push_back(static_cast<char>(held));
    }
  }
};

// A table, shared by all states in which it is the same one: each different one is kept once, and has a number.
template <class Table>
class Shared {
 public:
  explicit Shared(Table table) { Set(std::move(table)); }

  const Table* operator->() const { return &node_->table; }
  uint32_t number() const { return node_->number; }

  // Runs one event on a copy.
  template <class Event>
  auto Step(Event event) {
    Table next = node_->table;
    auto result = event(next);
    Set(std::move(next));
    return result;
  }

 private:
  struct Node {
    Node(Table t, uint32_t n) : table(std::move(t)), number(n) {}
    Table table;
    uint32_t number;
  };

  void Set(Table table) {
    static std::unordered_map<std::string, std::unique_ptr<const Node>> all;  // by canonical bytes
    const auto [at, is_new] = all.try_emplace(table.Encoding());
    if (is_new) at->second = std::make_unique<const Node>(std::move(table), static_cast<uint32_t>(all.size()));
    node_ = at->second.get();
  }

  const Node* node_;
};

// Where a value is in its life, as the world outside the tables knows it.
enum class Phase : uint8_t {
  kUnborn,
  kSent,
  kMaking,
  kMade,
  kFailed,
  kNever  // its creating call was lost with its creator
};

// Workers as a set of bits.
using Workers = uint8_t;
inline bool Has(Workers set, int worker) { return (set >> worker & 1) != 0; }
inline void Insert(Workers& set, int worker) { set = static_cast<Workers>(set | 1 << worker); }

struct State {
  using Owner = rref::BasicOwnerTable<Rules>;
  using Channel = std::vector<Message>;  // oldest first

  Shared<Owner> owner{Owner(Worker(kOwner))};
  std::array<Shared<rref::UserTable>, kWorkers> users{
      // [kOwner] stays empty
      Shared(rref::UserTable()), Shared(rref::UserTable()), Shared(rref::UserTable()), Shared(rref::UserTable())};
  // [from][to]; from the owner to itself: what rule 8 lets it do later
  std::array<std::array<Channel, kWorkers>, kWorkers> channels;

  struct PerValue {
    Phase phase = Phase::kUnborn;
    uint8_t freed = 0;  // how often
    uint8_t early = 0;  // arguments that arrived and whose hold is not taken (Mistake::kLateHold only)
  };
  std::array<PerValue, kValues> values;

  uint8_t shares = 0, fetches = 0, confirms = 0, strays = 0;      // used of the bounds
  std::array<uint8_t, kWorkers> open_fetches{}, open_confirms{};  // begun and not answered

  Workers dead = 0;                       // they do nothing any more
  Workers outcast = 0;                    // declared lost by the owner while they live
  std::array<Workers, kWorkers> lost{};   // whom each has lost: the session ended, its last message handled
  std::array<Workers, kWorkers> ended{};  // with whom the session of each has ended, by either side

  bool Acts(int worker) const { return !Has(dead, worker); }
  // One that keeps the guarantees, and to whom they are kept.
  bool Counts(int worker) const { return !Has(dead, worker) && !Has(outcast, worker); }

  void Send(int from, int to, Message message) {
    if (!Has(dead, to) && !Has(ended[from], to)) channels[from][to].push_back(message);
  }

  void EndSession(int one, int other) {
    Insert(ended[one], other);
    Insert(ended[other], one);
    channels[one][other].clear();
    channels[other][one].clear();
  }

  Message Take(int from, int to) {
    Channel& channel = channels[from][to];
    const Message message = channel.front();
    channel.erase(channel.begin());
    return message;
  }

  // Equal exactly for equal states. Written over what is in `key`.
  void WriteKey(std::string& key) const {
    key.clear();
    for (const PerValue& value : values) {
      key.push_back(static_cast<char>(static_cast<int>(value.phase) << 4 | value.freed));
      key.push_back(static_cast<char>(value.early));
    }
    key.push_back(static_cast<char>(shares << 4 | fetches));
    key.push_back(static_cast<char>(confirms << 4 | strays));
    for (int who = 0; who < kWorkers; ++who) {
      key.push_back(static_cast<char>(open_fetches[who] << 4 | open_confirms[who]));
      key.push_back(static_cast<char>(lost[who] << 4 | ended[who]));
    }
    key.push_back(static_cast<char>(dead << 4 | outcast));
    Append(key, owner.number());
    for (int user = kFirstUser; user < kWorkers; ++user) Append(key, users[user].number());
    for (int from = 0; from < kWorkers; ++from) {
      for (int to = 0; to < kWorkers; ++to) {
        if (from == to && from != kOwner) continue;
        key.push_back(static_cast<char>(channels[from][to].size()));
        for (const Message& message : channels[from][to]) message.AppendTo(key);
      }
    }
  }

 private:
  static void Append(std::string& key, uint32_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
};

}  // namespace gradwire::sim
