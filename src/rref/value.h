// What a remote reference refers to, as the tables see it: something opaque, or the failure of its creation.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/ids.h"
#include "gradwire/error.h"

namespace gradwire::rref {

// The layer above says what is in it. Destroyed by whoever carries out a table's actions, never by a table.
class Value {
 public:
  virtual ~Value() = default;
};

// What became of the creation. Exactly one is set; neither while it is pending.
struct Result {
  std::shared_ptr<const Value> value;
  std::shared_ptr<const Failure> failure;

  static Result Of(std::shared_ptr<const Value> value) { return {std::move(value), nullptr}; }
  static Result Of(Failure failure) { return {nullptr, std::make_shared<const Failure>(std::move(failure))}; }
  bool pending() const { return !value && !failure; }
};

// Names one who waits for an answer. The caller of a table chooses it and is handed it back with the answer.
using Waiter = uint64_t;

// The answer to a Confirm: the owner has the fork in its table, or `failure` says why nobody can tell.
struct AnswerConfirm {
  Waiter waiter = 0;
  std::shared_ptr<const Failure> failure;
};

// A fork that a worker holds, made by another that is asked about (rule 8 of docs/rref.md).
struct Gift {
  RRefId rref;
  ForkId fork;

  bool operator==(const Gift&) const = default;
};

}  // namespace gradwire::rref
