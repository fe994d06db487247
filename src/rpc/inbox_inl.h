// The steps of Inbox, apart from its declaration so that tests can build it with a rule switched off.
#pragma once

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "rpc/inbox.h"
#include "wire/cursor.h"

namespace gradwire::rpc {

// --- Messages.

template <class Rules, class Complete>
void BasicInbox<Rules, Complete>::CheckNext(uint64_t number) const {
  if (number == taken_ + 1) return;
  if (!Rules::kOnlyTheNextMessage && number <= taken_) return;
  if (!Rules::kLeaverCounts && leaving_) return;
  wire::ThrowInvalid("it sends message " + std::to_string(number) + " where message " + std::to_string(taken_ + 1) +
                     " comes next");
}

template <class Rules, class Complete>
std::optional<Complete> BasicInbox<Rules, Complete>::Take(uint64_t number, Complete complete,
                                                          std::vector<wire::BulkTarget> storages, bool ready) {
  if (!Rules::kOnlyTheNextMessage && number <= taken_) return std::nullopt;
  if (!Rules::kLeaverCounts && leaving_) return std::nullopt;
  assert(number == taken_ + 1 && !ended_);
  taken_ = number;
  uint64_t missing = 0;
  for (const wire::BulkTarget& target : storages) missing += target.size;
  if (missing == 0) {
    if (!complete) return std::nullopt;
    return complete;
  }
  Arriving& message = arriving_.emplace_hint(arriving_.end(), number, Arriving{})->second;
  message.complete = std::move(complete);
  message.missing = missing;
  message.ready = ready;
  message.storages.reserve(storages.size());
  for (wire::BulkTarget& target : storages) message.storages.push_back({std::move(target), {}});
  awaited_bytes_ += missing;
  if (Rules::kLeaverNeedsNoMemory && leaving_) ForgetBytes(number, message);
  return std::nullopt;
}

template <class Rules, class Complete>
void BasicInbox<Rules, Complete>::Ready(uint64_t number, std::vector<wire::BulkTarget> storages) {
  const auto at = arriving_.find(number);
  if (at == arriving_.end() || at->second.ready) return;
  Arriving& message = at->second;
  assert(storages.size() == message.storages.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    assert(storages[i].size == message.storages[i].target.size);
    message.storages[i].target = std::move(storages[i]);
  }
  MakeReady(number, message);
}

template <class Rules, class Complete>
void BasicInbox<Rules, Complete>::MakeReady(uint64_t number, Arriving& message) {
  message.ready = true;
  if (std::exchange(message.owes_now, false)) Owe({.message = number, .verdict = wire::Verdict::kNow, .range = {}});
}

template <class Rules, class Complete>
std::optional<Complete> BasicInbox<Rules, Complete>::Forget(uint64_t number) {
  const auto at = arriving_.find(number);
  if (at == arriving_.end() || at->second.forgotten) return std::nullopt;
  ForgetBytes(number, at->second);
  return std::exchange(at->second.complete, Complete{});
}

template <class Rules, class Complete>
void BasicInbox<Rules, Complete>::ForgetBytes(uint64_t number, Arriving& message) {
  message.forgotten = true;
  for (Storage& storage : message.storages) storage.target = {.data = nullptr, .size = storage.target.size, .keep = {}};
  MakeReady(number, message);
}

// --- Pieces.

// The message of a piece that may come.
template <class Rules, class Complete>
auto BasicInbox<Rules, Complete>::Find(const wire::BulkPiece& piece, uint64_t size) -> typename Arrivals::iterator {
  const auto refuse = [&piece](const char* what) {
    wire::ThrowInvalid("it sends bytes for storage " + std::to_string(piece.storage) + " of message " +
                       std::to_string(piece.message_number) + what);
  };
  const auto at = arriving_.find(piece.message_number);
  if (at == arriving_.end()) refuse(", which awaits none");
  if (piece.storage >= at->second.storages.size()) refuse(", which was not announced");
  const Storage& storage = at->second.storages[piece.storage];
  if (size == 0 || piece.offset > storage.target.size || size > storage.target.size - piece.offset) {
    refuse(" that are outside of it");
  }
  if (storage.present.Overlaps({piece.offset, piece.offset + size})) refuse(" that are there already");
  return at;
}

template <class Rules, class Complete>
std::byte* BasicInbox<Rules, Complete>::Place(const wire::BulkPiece& piece, uint64_t size) {
  placing_.reset();
  if (ended_) return nullptr;
  const Arriving& message = Find(piece, size)->second;
  const wire::BulkTarget& target = message.storages[piece.storage].target;
  const bool in_place = message.ready && !message.forgotten;
  placing_ = Placing{.message = piece.message_number, .in_place = in_place, .keep = target.keep};
  return in_place ? target.data + piece.offset : nullptr;
}

template <class Rules, class Complete>
std::optional<Complete> BasicInbox<Rules, Complete>::OnPiece(const wire::BulkPiece& piece, uint64_t size) {
  const std::optional<Placing> placed = std::exchange(placing_, std::nullopt);
  if (ended_) return std::nullopt;
  const auto at = Find(piece, size);
  Arriving& message = at->second;
  wire::PieceAnswer answer{.message = piece.message_number,
                           .verdict = wire::Verdict::kHad,
                           .range = {.storage = piece.storage, .offset = piece.offset, .size = size}};
  if (!message.forgotten && !(placed && placed->in_place)) {
    answer.verdict = wire::Verdict::kLater;
    Owe(answer);
    message.owes_now = message.owes_now || Rules::kLaterOwesNow;
    if (message.ready) MakeReady(piece.message_number, message);  // since the piece has begun
    return std::nullopt;
  }
  Owe(answer);
  message.storages[piece.storage].present.Add({piece.offset, piece.offset + size});
  message.missing -= size;
  awaited_bytes_ -= size;
  if (message.missing > 0) return std::nullopt;
  Complete complete = std::move(message.complete);
  arriving_.erase(at);
  if (!complete) return std::nullopt;
  return complete;
}

// --- What is owed.

template <class Rules, class Complete>
void BasicInbox<Rules, Complete>::Owe(const wire::PieceAnswer& answer) {
  owed_.push_back(answer);
  if (answer.verdict != wire::Verdict::kHad) ++owed_at_once_;
}

template <class Rules, class Complete>
std::vector<wire::PieceAnswer> BasicInbox<Rules, Complete>::TakeAnswers() {
  std::vector<wire::PieceAnswer> answers;
  if (owed_.size() <= wire::kMostPieceAnswers) {
    answers.swap(owed_);
    owed_at_once_ = 0;
    return answers;
  }
  const auto end = owed_.begin() + static_cast<ptrdiff_t>(wire::kMostPieceAnswers);
  answers.assign(owed_.begin(), end);
  owed_.erase(owed_.begin(), end);
  owed_at_once_ -= static_cast<size_t>(std::count_if(
      answers.begin(), answers.end(), [](const auto& answer) { return answer.verdict != wire::Verdict::kHad; }));
  return answers;
}

template <class Rules, class Complete>
wire::ResumeState BasicInbox<Rules, Complete>::Resume() {
  placing_.reset();
  if (Rules::kForgetAnswersOfOldPath) {
    owed_.clear();
    owed_at_once_ = 0;
  }
  wire::ResumeState told{.taken = taken_, .arriving = {}};
  told.arriving.reserve(arriving_.size());
  for (auto& [number, message] : arriving_) {
    auto& arriving = told.arriving.emplace_back();
    arriving.message = number;
    arriving.ready = message.ready;
    for (uint32_t i = 0; i < message.storages.size(); ++i) {
      for (const Interval& bytes : message.storages[i].present) {
        arriving.present.push_back({.storage = i, .offset = bytes.begin, .size = bytes.end - bytes.begin});
      }
    }
    message.owes_now = Rules::kNotReadyOwesNow && !message.ready;
  }
  return told;
}

// --- The end.

template <class Rules, class Complete>
std::vector<Complete> BasicInbox<Rules, Complete>::Leave() {
  std::vector<Complete> dropped;
  if (leaving_) return dropped;
  leaving_ = true;
  for (auto& [number, message] : arriving_) {
    if (message.complete) dropped.push_back(std::exchange(message.complete, Complete{}));
    if (Rules::kLeaverNeedsNoMemory && !message.forgotten) ForgetBytes(number, message);
  }
  return dropped;
}

template <class Rules, class Complete>
std::vector<Complete> BasicInbox<Rules, Complete>::End() {
  std::vector<Complete> dropped;
  ended_ = true;
  for (auto& [number, message] : arriving_) {
    if (message.complete) dropped.push_back(std::move(message.complete));
  }
  arriving_.clear();
  owed_.clear();
  owed_at_once_ = 0;
  awaited_bytes_ = 0;
  return dropped;
}

template <class Rules, class Complete>
std::string BasicInbox<Rules, Complete>::Encoding() const {
  std::string out;
  wire::Append(out, taken_, static_cast<uint8_t>(leaving_ + 2 * ended_));
  for (const auto& [number, message] : arriving_) {
    wire::Append(out, number, static_cast<uint8_t>(message.ready + 2 * message.forgotten + 4 * message.owes_now));
    for (const Storage& storage : message.storages) {
      for (const Interval& bytes : storage.present) wire::Append(out, bytes.begin, bytes.end);
      wire::Append(out, uint64_t{0});  // no interval ends there
    }
  }
  wire::Append(out, uint64_t{0}, static_cast<uint8_t>(placing_ ? 1 + placing_->in_place : 0));
  for (const wire::PieceAnswer& answer : owed_) {
    wire::Append(out, answer.message, answer.verdict, answer.range.storage, answer.range.offset, answer.range.size);
  }
  return out;
}

}  // namespace gradwire::rpc
