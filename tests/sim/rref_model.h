// What the layer above the tables does with them, without it: send steps, header steps, and carrying actions out. Pure
// functions of a State, one for each thing that can happen; a mistake of Mistake is built in.
#pragma once

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

namespace gradwire::sim {

using rref::Standing;

template <Mistake>
struct Rules : rref::OwnerRules {};
template <>
struct Rules<Mistake::kNoTombstone> : rref::OwnerRules {
  static constexpr bool kRememberEarlyDrops = false;
};
template <>
struct Rules<Mistake::kTombstoneAfterFree> : rref::OwnerRules {
  static constexpr bool kForgetWhatIsGone = false;
};
template <>
struct Rules<Mistake::kFetchBeforeCreate> : rref::OwnerRules {
  static constexpr bool kFetchWaitsForCreation = false;
};
template <>
struct Rules<Mistake::kFetchKeepsNothing> : rref::OwnerRules {
  static constexpr bool kFetchKeepsTheValue = false;
};
template <>
struct Rules<Mistake::kConfirmAtOnce> : rref::OwnerRules {
  static constexpr bool kConfirmWaitsForAdd = false;
};

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

template <Mistake kMistake>
class Model {
 public:
  using World = State<Rules<kMistake>>;
  using Owner = typename World::Owner;

  explicit Model(SecondValue second) {
    const bool of_owner = second == SecondValue::kOfOwner;
    rrefs_ = {RRefId{Worker(kFirstUser), 0}, of_owner ? RRefId{Worker(kOwner), 0} : RRefId{Worker(kFirstUser), 2}};
    for (int v = 0; v < kValues; ++v) results_.push_back(rref::Result::Of(std::make_shared<Numbered>(v)));
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

  void PassToOwner(World& w, int user, int v) const {
    ++w.shares;
    w.Send(user, kOwner, {Kind::kArgument, static_cast<uint8_t>(v), {}});
  }

  void Fetch(World& w, int user, int v) const {
    ++w.fetches, ++w.open_fetches;
    w.Send(user, kOwner, {Kind::kFetch, static_cast<uint8_t>(v), {}});
  }

  void Confirm(World& w, int user, ForkId fork) const {
    ++w.confirms, ++w.open_confirms;
    Carry(w, user, w.users[user].Step([&](rref::UserTable& table) { return table.Confirm(fork, 0); }), true);
  }

  void Release(World& w, int v) const {
    Carry(w, w.owner.Step([&](Owner& table) { return table.Release(rrefs_[v]); }));
  }

  void WaitOnOwner(World& w, int v) const {
    ++w.fetches, ++w.open_fetches;
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
    Require(standing != Standing::kNoLonger, "R1: an argument names a value that is gone");
  }

  void OwnerReceives(World& w, int from, const Message& m) const {
    const RRefId rref = rrefs_[m.value];
    if (m.kind == Kind::kArgument) {
      if constexpr (kMistake == Mistake::kLateHold) {
        ++w.values[m.value].early;
      } else {
        TakeHold(w, m.value);
      }
      return;
    }
    Carry(w, w.owner.Step([&](Owner& table) -> typename Owner::Actions {
      switch (m.kind) {
        case Kind::kCreate: {
          auto actions = table.Create(rref, m.fork, Worker(from));
          Require(actions.has_value(), "rule 7: a creation in order is refused");
          w.values[m.value].phase = Phase::kMaking;
          return std::move(*actions);
        }
        case Kind::kAdd: return table.AddFork(rref, m.fork, Worker(m.other));
        case Kind::kDrop: return table.DropFork(rref, m.fork);
        case Kind::kFetch: return table.Fetch(rref, FetchWaiter(from, m.value));
        case Kind::kConfirm: return table.Confirm(rref, m.fork, ConfirmWaiter(from, m));
        default: throw std::logic_error("not a message for the owner");
      }
    }));
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
        }),
                "a fork arrives twice");
        break;
      case Kind::kFetchReply: FetchAnswered(w, m.value, ended); break;
      case Kind::kConfirmReply:
        Carry(w, user, table.Step([&](rref::UserTable& t) { return t.ConfirmReplied(m.fork, failure); }), true);
        break;
      default: throw std::logic_error("not a message for a user");
    }
  }

  void FetchAnswered(World& w, int v, Ended ended) const {
    --w.open_fetches;
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

  void Carry(World& w, const typename Owner::Actions& actions) const {
    for (const auto& action : actions) {
      if (const auto* free = std::get_if<rref::Free>(&action)) {
        ++w.values[static_cast<const Numbered&>(*free->value).number].freed;
      } else if (const auto* fetch = std::get_if<rref::AnswerFetch>(&action)) {
        const int who = static_cast<int>(fetch->waiter >> 1);
        const auto v = static_cast<uint8_t>(fetch->waiter & 1);
        const uint8_t end = EndOf(fetch->result);
        if (fetch->result.value) Require(fetch->result.value == results_[v].value, "a fetch gets another value");
        if (who == kOwner) {
          FetchAnswered(w, v, static_cast<Ended>(end));
        } else {
          w.Send(kOwner, who, {Kind::kFetchReply, v, {}, end});
        }
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
      } else {
        --w.open_confirms;
        Require(!live || !std::get<rref::AnswerConfirm>(action).failure, "R1: a live handle is not confirmed");
      }
    }
  }

  std::array<RRefId, kValues> rrefs_;
  std::vector<rref::Result> results_;
};

}  // namespace gradwire::sim
