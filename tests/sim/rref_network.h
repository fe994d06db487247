// The state that the exploration of the RRef protocol visits: real tables, and the messages between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "rref/owner_table.h"
#include "rref/user_table.h"

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
  kConfirmReply
};

// How a creation or a fetch ended.
enum class Ended : uint8_t { kValue, kFailed, kGone };

struct Message {
  Kind kind;
  uint8_t value;      // 0 or 1
  ForkId fork;        // none for kArgument, kFetch and kFetchReply
  uint8_t other = 0;  // kAdd: the holder; replies: an Ended

  // Two bytes: the explored numbers are small.
  void AppendTo(std::string& key) const {
    key.push_back(static_cast<char>(static_cast<int>(kind) << 4 | value << 3 | other));
    key.push_back(static_cast<char>(NumberOf(fork.creator) << 6 | static_cast<int>(fork.number)));
  }
};

// A table and its canonical bytes, shared by all states in which it is the same one.
template <class Table>
class Shared {
 public:
  explicit Shared(Table table) { Set(std::move(table)); }

  const Table* operator->() const { return &node_->table; }
  const std::string& encoding() const { return node_->encoding; }

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
    Table table;
    std::string encoding;
  };

  void Set(Table table) {
    std::string encoding = table.Encoding();
    node_ = std::make_shared<const Node>(Node{std::move(table), std::move(encoding)});
  }

  std::shared_ptr<const Node> node_;
};

// Where a value is in its life, as the world outside the tables knows it.
enum class Phase : uint8_t { kUnborn, kSent, kMaking, kMade, kFailed };

template <class Rules>
struct State {
  using Owner = rref::BasicOwnerTable<Rules>;
  using Channel = std::vector<Message>;  // oldest first

  Shared<Owner> owner{Owner(Worker(kOwner))};
  std::array<Shared<rref::UserTable>, kWorkers> users{
      // [kOwner] stays empty
      Shared(rref::UserTable()), Shared(rref::UserTable()), Shared(rref::UserTable()), Shared(rref::UserTable())};
  std::array<std::array<Channel, kWorkers>, kWorkers> channels;  // [from][to]

  struct PerValue {
    Phase phase = Phase::kUnborn;
    uint8_t freed = 0;  // how often
    uint8_t early = 0;  // arguments that arrived and whose hold is not taken (Mistake::kLateHold only)
  };
  std::array<PerValue, kValues> values;

  uint8_t shares = 0, fetches = 0, confirms = 0, strays = 0;  // used of the bounds
  uint8_t open_fetches = 0, open_confirms = 0;                // begun and not answered

  void Send(int from, int to, Message message) { channels[from][to].push_back(message); }

  Message Take(int from, int to) {
    Channel& channel = channels[from][to];
    const Message message = channel.front();
    channel.erase(channel.begin());
    return message;
  }

  // Equal exactly for equal states.
  std::string Key() const {
    std::string key;
    key.reserve(128);
    for (const PerValue& value : values) {
      key.push_back(static_cast<char>(static_cast<int>(value.phase) << 4 | value.freed));
      key.push_back(static_cast<char>(value.early));
    }
    key.push_back(static_cast<char>(shares << 4 | fetches));
    key.push_back(static_cast<char>(confirms << 4 | strays));
    key.push_back(static_cast<char>(open_fetches << 4 | open_confirms));
    AppendSized(key, owner.encoding());
    for (int user = kFirstUser; user < kWorkers; ++user) AppendSized(key, users[user].encoding());
    for (int from = 0; from < kWorkers; ++from) {
      for (int to = 0; to < kWorkers; ++to) {
        if (from == to) continue;
        key.push_back(static_cast<char>(channels[from][to].size()));
        for (const Message& message : channels[from][to]) message.AppendTo(key);
      }
    }
    return key;
  }

 private:
  static void AppendSized(std::string& key, const std::string& part) {
    key.push_back(static_cast<char>(part.size()));
    key.push_back(static_cast<char>(part.size() >> 8));
    key += part;
  }
};

}  // namespace gradwire::sim
