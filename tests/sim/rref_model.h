// What the layer above the tables does with them, without it: send steps, header steps, and carrying actions out. Pure
// functions of a State, one for each thing that can happen; a mistake of Mistake is built in.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <variant>
#include <vector>

#include "gradwire/error.h"
#include "rref/owner_table_inl.h"
#include "rref_explore.h"
#include "rref_network.h"
#include "rref_rules.h"

namespace gradwire::sim {

using rref::Standing;

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void Require(bool holds, const char* guarantee) {
  if (!holds) throw Broken(guarantee);
}

struct Numbered : rref::Value {
  explicit Numbered(int number) : number(number) {}
  int number;
};

// The values themselves: the same ones in all explorations, as the tables are that hold them.
inline const std::array<rref::Result, kValues>& Results() {
  static const std::array<rref::Result, kValues> results{rref::Result::Of(std::make_shared<Numbered>(0)),
                                                         rref::Result::Of(std::make_shared<Numbered>(1))};
  return results;
}

class Model {
 public:
  using World = State;
  using Owner = State::Owner;

  Model(SecondValue second, bool late) : late_(late) {
    const bool of_owner = second == SecondValue::kOfOwner;
    rrefs_ = {RRefId{Worker(kFirstUser), 0}, of_owner ? RRefId{Worker(kOwner), 0} : RRefId{Worker(kFirstUser), 2}};
  }

  RRefId rref(int v) const { return rrefs_[v]; }
  int ValueOf(RRefId rref) const { return rref == rrefs_[0] ? 0 : 1; }

  // What programs do.

  void Create(World& w, int v) const {
    const ForkId fork{Worker(kFirstUser), rrefs_[v].number + 1};
    w.users[kFirstUser].Step([&](rref::UserTable& table) {
      table.Created(rrefs_[v], fork, Worker(kOwner));
      return true;
    });
    w.values[v].phase = Phase::kSent;
    w.Send(kFirstUser, kOwner, {Kind::kCreate, static_cast<uint8_t>(v), fork});
  }

  void CreateLocal(World& w, int v) const {
    w.values[v].phase = Phase::kMade;
    Carry(w, w.owner.Step([&](Owner& table) {
      table.CreateLocal(rrefs_[v]);
      return table.SetValue(rrefs_[v], results_[v]);
    }));
  }

  // The creation ends, and its call is answered.
  void Make(World& w, int v, bool fails) const {
    const rref::Result result = fails ? rref::Result::Of(Failure{.code = ErrorCode::kRemote}) : results_[v];
    w.values[v].phase = result.failure ? Phase::kFailed : Phase::kMade;
    Carry(w, w.owner.Step([&](Owner& table) { return table.SetValue(rrefs_[v], result); }));
    w.Send(kOwner, kFirstUser,
           {Kind::kCreateReply, static_cast<uint8_t>(v), {Worker(kFirstUser), rrefs_[v].number + 1}, EndOf(result)});
  }

  void Drop(World& w, int user, ForkId fork) const {
    Carry(w, user, w.users[user].Step([&](rref::UserTable& table) { return table.Dropped(fork); }), false);
  }

  // The send step of rule 4. `drop_first` is for Mistake::kDropBeforeAdd.
  void Share(World& w, int user, ForkId fork, uint8_t v, int to, bool drop_first) const {
    const std::optional<rref::SendAddFork> add = w.users[user]->Shared(fork, NextFork(w, user), Worker(to));
    if (drop_first) Drop(w, user, fork);
    w.Send(user, NumberOf(add->owner), {Kind::kAdd, v, add->fork, static_cast<uint8_t>(to)});
    w.Send(user, to, {Kind::kGive, v, add->fork});
  }

  void DropTwice(World& w, int user, ForkId fork, int v) const {
    ++w.strays;
    Drop(w, user, fork);
    w.Send(user, kOwner, {Kind::kDrop, static_cast<uint8_t>(v), fork});
  }

  // Losses.

  // A user dies: of what it sent to each, only the first `kept` messages arrive.
  void Die(World& w, int user, const std::array<size_t, kWorkers>& kept) const {
    Insert(w.dead, user);
    w.users[user].Step([](rref::UserTable& table) { return table = rref::UserTable(), true; });
    w.open_fetches[user] = w.open_confirms[user] = 0;
    for (int other = 0; other < kWorkers; ++other) {
      w.channels[other][user].clear();
      w.channels[user][other].resize(kept[other]);
    }
  }

  // The owner's judge declares a user lost that lives: their session ends, whatever is on its way.
  void CastOut(World& w, int user) const {
    Insert(w.outcast, user);
    Lose(w, kOwner, user);
  }

  // `who` has lost `peer`: no message of it is left, or their session ends before it.
  void Lose(World& w, int who, int peer) const {
    Insert(w.lost[who], peer);
    w.EndSession(who, peer);
    if (who != kOwner) {
      return Carry(w, who, w.users[who].Step([&](rref::UserTable& t) { return t.PeerLost(Worker(peer)); }), true);
    }
    for (auto& value : w.values) {
      if (peer == kFirstUser && value.phase == Phase::kSent) value.phase = Phase::kNever;
    }
    Carry(w, w.owner.Step([&](Owner& table) {
      return table.PeerLost(Worker(peer), std::make_shared<const Failure>(Failure{.code = ErrorCode::kDisconnected}));
    }));
  }

  void PassToOwner(World& w, int user, int v) const {
    ++w.shares;
    w.Send(user, kOwner, {Kind::kArgument, static_cast<uint8_t>(v), {}});
  }

  void Fetch(World& w, int user, int v) const {
    ++w.fetches, ++w.open_fetches[user];
    w.Send(user, kOwner, {Kind::kFetch, static_cast<uint8_t>(v), {}});
  }

  void Confirm(World& w, int user, ForkId fork) const {
    ++w.confirms, ++w.open_confirms[user];
    Carry(w, user, w.users[user].Step([&](rref::UserTable& table) { return table.Confirm(fork, 0); }), true);
  }

  void Release(World& w, int v) const {
    Carry(w, w.owner.Step([&](Owner& table) { return table.Release(rrefs_[v]); }));
  }

  void WaitOnOwner(World& w, int v) const {
    ++w.fetches, ++w.open_fetches[kOwner];
    Carry(w, w.owner.Step([&](Owner& table) { return table.Fetch(rrefs_[v], FetchWaiter(kOwner, v)); }));
  }

  void Give(World& w, int v, int to) const {
    const ForkId fork = NextFork(w, kOwner);
    const Standing standing = w.owner.Step([&](Owner& table) { return table.GiveFork(rrefs_[v], fork, Worker(to)); });
    Require(standing != Standing::kNoLonger, "R1: the owner's own handle names a value that is gone");
    w.Send(kOwner, to, {Kind::kGive, static_cast<uint8_t>(v), fork});
  }

  void TakeLateHold(World& w, int v) const {
    --w.values[v].early;
    TakeHold(w, v);
  }

  // What the workers do with what arrives.

  void Deliver(World& w, int from, int to) const {
    const Message m = w.Take(from, to);
    to == kOwner ? OwnerReceives(w, from, m) : UserReceives(w, from, to, m);
  }

 private:
  static ForkId NextFork(World& w, int maker) { return {Worker(maker), uint64_t{4} + w.shares++}; }

  void TakeHold(World& w, int v) const {
    const Standing standing = w.owner.Step([&](Owner& table) { return table.Hold(rrefs_[v]); });
    const bool expected = standing != Standing::kNoLonger || w.values[v].phase == Phase::kNever;
    Require(expected, "R1: an argument names a value that is gone");
  }

  void OwnerReceives(World& w, int from, const Message& m) const {
    const RRefId rref = rrefs_[m.value];
    if (m.kind == Kind::kAnswer) return OwnerGetsAnswer(w, from, m);
    if (m.kind == Kind::kMembers) return BeginRounds(w);
    if (m.kind == Kind::kArgument) {
      if (Rules::planted == Mistake::kLateHold) {
        ++w.values[m.value].early;
      } else {
        TakeHold(w, m.value);
      }
      return;
    }
    Carry(w, w.owner.Step([&](Owner& table) -> Owner::Actions {
      switch (m.kind) {
        case Kind::kCreate: {
          auto actions = table.Create(rref, m.fork, Worker(from));
          Require(actions.has_value(), "rule 7: a creation in order is refused");
          w.values[m.value].phase = Phase::kMaking;
          return std::move(*actions);
        }
        case Kind::kAdd: return table.AddFork(rref, m.fork, Worker(m.other));
        case Kind::kDrop: return table.DropFork(rref, m.fork, Worker(from));
        case Kind::kFetch: return table.Fetch(rref, FetchWaiter(from, m.value));
        case Kind::kConfirm: return table.Confirm(rref, m.fork, ConfirmWaiter(from, m));
        default: throw std::logic_error("not a message for the owner");
      }
    }));
  }

  void BeginRounds(World& w) const {
    Carry(w, w.owner.Step([&](Owner& table) {
      return table.BeginRounds({Worker(kOwner), Worker(kFirstUser), Worker(kFirstUser + 1), Worker(kWorkers - 1)});
    }));
  }

  // An answer may be looked at some time after it has arrived: its fork says whose it is then.
  void OwnerGetsAnswer(World& w, int from, Message m) const {
    if (from != kOwner) {
      m.fork.creator = Worker(from);
      if (late_) return w.Send(kOwner, kOwner, m);
    }
    std::vector<rref::Gift> gifts;
    const WorkerId about = Worker(m.other);
    for (int v = 0; v < kValues; ++v) {
      for (uint64_t number = 0; number < 8; ++number) {
        if (m.gifts[v] >> number & 1) gifts.push_back({rrefs_[v], {about, number}});
      }
    }
    Carry(w, w.owner.Step([&](Owner& table) { return table.Reconciled(m.fork.creator, about, gifts); }));
  }

  void UserGetsQuestion(World& w, int user, WorkerId about) const {
    const auto ask = [&](rref::UserTable& table) { return table.Reconcile(Worker(kOwner), about, NumberOf(about)); };
    if (Rules::planted == Mistake::kNoFence) {
      rref::UserTable hasty = *w.users[user].operator->();
      static_cast<void>(hasty.PeerLost(about));
      return Carry(w, user, ask(hasty), true);
    }
    Carry(w, user, w.users[user].Step(ask), true);
  }

  void UserReceives(World& w, int from, int user, const Message& m) const {
    const auto ended = static_cast<Ended>(m.other);
    const auto failure = ended == Ended::kValue ? nullptr : std::make_shared<const Failure>();
    auto& table = w.users[user];
    switch (m.kind) {
      case Kind::kCreateReply:
        Carry(w, user, table.Step([&](rref::UserTable& t) { return t.CreationReplied(m.fork, failure); }), true);
        break;
      case Kind::kGive:
        Require(table.Step([&](rref::UserTable& t) {
          return t.Received(rrefs_[m.value], m.fork, Worker(kOwner), Worker(from));
        }) == rref::Arrival::kTaken,
                "a fork arrives twice");
        break;
      case Kind::kAsk: UserGetsQuestion(w, user, Worker(m.other)); break;
      case Kind::kFetchReply: FetchAnswered(w, user, m.value, ended); break;
      case Kind::kConfirmReply:
        Carry(w, user, table.Step([&](rref::UserTable& t) { return t.ConfirmReplied(m.fork, failure); }), true);
        break;
      default: throw std::logic_error("not a message for a user");
    }
  }

  void FetchAnswered(World& w, int who, int v, Ended ended) const {
    --w.open_fetches[who];
    if (w.values[v].phase == Phase::kNever) return Require(ended == Ended::kGone, "R3: a value that was never made");
    Require(ended != Ended::kGone, "R1: a fetch through a live handle finds the value gone");
    Require((ended == Ended::kFailed) == (w.values[v].phase == Phase::kFailed), "a fetch gets another's answer");
  }

  // Carrying the tables' actions out.

  static rref::Waiter FetchWaiter(int who, int v) { return who << 1 | v; }
  static rref::Waiter ConfirmWaiter(int who, const Message& m) {
    return m.fork.number << 8 | NumberOf(m.fork.creator) << 4 | who << 1 | m.value;
  }

  static uint8_t EndOf(const rref::Result& result) {
    if (result.value) return static_cast<uint8_t>(Ended::kValue);
    return static_cast<uint8_t>(result.failure->code == ErrorCode::kRemote ? Ended::kFailed : Ended::kGone);
  }

  void Carry(World& w, const Owner::Actions& actions) const {
    for (const auto& action : actions) {
      if (const auto* free = std::get_if<rref::Free>(&action)) {
        ++w.values[static_cast<const Numbered&>(*free->value).number].freed;
      } else if (const auto* fetch = std::get_if<rref::AnswerFetch>(&action)) {
        const int who = static_cast<int>(fetch->waiter >> 1);
        const auto v = static_cast<uint8_t>(fetch->waiter & 1);
        const uint8_t end = EndOf(fetch->result);
        if (fetch->result.value) Require(fetch->result.value == results_[v].value, "a fetch gets another value");
        if (who == kOwner) {
          FetchAnswered(w, kOwner, v, static_cast<Ended>(end));
        } else {
          w.Send(kOwner, who, {Kind::kFetchReply, v, {}, end});
        }
      } else if (std::holds_alternative<rref::NeedMembers>(action)) {
        late_ ? w.Send(kOwner, kOwner, {Kind::kMembers, 0, {}}) : BeginRounds(w);
      } else if (const auto* ask = std::get_if<rref::AskReconcile>(&action)) {
        w.Send(kOwner, NumberOf(ask->whom), {Kind::kAsk, 0, {}, static_cast<uint8_t>(NumberOf(ask->about))});
      } else {
        const auto& confirm = std::get<rref::AnswerConfirm>(action);
        const int who = static_cast<int>(confirm.waiter >> 1 & 7);
        const ForkId fork{Worker(static_cast<int>(confirm.waiter >> 4 & 15)), confirm.waiter >> 8};
        const Ended end = confirm.failure ? Ended::kGone : Ended::kValue;
        w.Send(kOwner, who,
               {Kind::kConfirmReply, static_cast<uint8_t>(confirm.waiter & 1), fork, static_cast<uint8_t>(end)});
      }
    }
  }

  // `live`: the handle that waits for a confirmation is live, and must get it.
  void Carry(World& w, int user, const rref::UserTable::Actions& actions, bool live) const {
    for (const auto& action : actions) {
      if (const auto* drop = std::get_if<rref::SendDropFork>(&action)) {
        w.Send(user, NumberOf(drop->owner), {Kind::kDrop, static_cast<uint8_t>(ValueOf(drop->rref)), drop->fork});
      } else if (const auto* ask = std::get_if<rref::SendConfirm>(&action)) {
        w.Send(user, NumberOf(ask->owner), {Kind::kConfirm, static_cast<uint8_t>(ValueOf(ask->rref)), ask->fork});
      } else if (const auto* answer = std::get_if<rref::AnswerReconcile>(&action)) {
        Message message{Kind::kAnswer, 0, {}, static_cast<uint8_t>(answer->waiter)};
        for (const rref::Gift& gift : answer->gifts) {
          message.gifts[ValueOf(gift.rref)] |= static_cast<uint8_t>(1 << gift.fork.number);
        }
        w.Send(user, kOwner, message);
      } else if (const auto* confirm = std::get_if<rref::AnswerConfirm>(&action)) {
        --w.open_confirms[user];
        const bool never = std::any_of(w.values.begin(), w.values.end(),
                                       [](const auto& value) { return value.phase == Phase::kNever; });
        Require(!live || never || !confirm->failure, "R1: a live handle is not confirmed");
      }  // a Probe finds out what Lose() tells at any time
    }
  }

  const bool late_;
  std::array<RRefId, kValues> rrefs_;
  const std::array<rref::Result, kValues>& results_ = Results();
};

}  // namespace gradwire::sim
