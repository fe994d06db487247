// The steps of Outbox, apart from its declaration so that tests can build it with a rule switched off.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "rpc/outbox.h"
#include "wire/cursor.h"
#include "wire/frame.h"

namespace gradwire::rpc {

// --- Queueing.

template <class Rules>
uint64_t BasicOutbox<Rules>::Push(wire::FrameKind kind, wire::EncodedMessage message) {
  assert(!ended_ && message.bytes.size() >= wire::FrameHeader::kSize);
  const uint64_t number = last_ + 1;
  Sending sending;
  for (wire::BulkSource& source : message.bulk) {
    if (source.size == 0) continue;
    sending.storages.resize(message.bulk.size());
    Storage& storage = sending.storages[static_cast<size_t>(&source - message.bulk.data())];
    retained_bytes_ += source.size;
    storage.missing.Add({0, source.size});
    storage.source = std::move(source);
    storage.kept = true;
    ++sending.open;
  }
  const bool has_bulk = sending.open > 0;
  if (has_bulk) sending_.emplace_hint(sending_.end(), number, std::move(sending));
  if (last_ - acked_ == kept_.size()) Grow();
  last_ = number;
  retained_bytes_ += message.bytes.size();
  At(number) = std::make_shared<const Message>(Message{kind, has_bulk, std::move(message.bytes)});
  return number;
}

template <class Rules>
void BasicOutbox<Rules>::Grow() {
  std::vector<std::shared_ptr<const Message>> grown(std::max<size_t>(16, 2 * kept_.size()));
  for (uint64_t number = acked_ + 1; number <= last_; ++number) {
    grown[number & (grown.size() - 1)] = std::move(At(number));
  }
  kept_.swap(grown);
}

// --- Handing out.

template <class Rules>
void BasicOutbox<Rules>::Next(size_t budget, uint64_t taken, std::vector<transport::OutFrame>& frames) {
  size_t used = 0;
  for (bool first = true; has_next() && (first || used < budget); first = false) {
    if (next_ <= last_) {
      HandOutHeader(taken, frames);
    } else {
      HandOutPiece(taken, frames);
    }
    used += frames.back().size();
  }
}

template <class Rules>
void BasicOutbox<Rules>::HandOutHeader(uint64_t taken, std::vector<transport::OutFrame>& frames) {
  const uint64_t number = next_++;
  const std::shared_ptr<const Message>& message = At(number);
  const std::string_view body = std::string_view(message->bytes).substr(wire::FrameHeader::kSize);
  transport::OutFrame& frame = frames.emplace_back();
  wire::EncodeHeader(
      {.kind = message->kind, .body_size = static_cast<uint32_t>(body.size()), .number = number, .acknowledged = taken},
      frame.head.data());
  frame.head_size = wire::FrameHeader::kSize;
  if (body.size() <= frame.head.size() - wire::FrameHeader::kSize) {
    std::copy(body.begin(), body.end(), frame.head.begin() + wire::FrameHeader::kSize);
    frame.head_size += static_cast<uint32_t>(body.size());
  } else {
    frame.body = body;
    frame.body_keep = message;
  }
  sent_ = std::max(sent_, number);
  if (message->has_bulk) {
    if (const auto at = sending_.find(number); at != sending_.end()) FindTurn(number, at->second);
  }
  if (!Rules::kFreeWhenAcknowledged) {
    Freed freed;
    FreeBodies(number, freed);
  }
}

template <class Rules>
void BasicOutbox<Rules>::HandOutPiece(uint64_t taken, std::vector<transport::OutFrame>& frames) {
  const uint64_t number = turns_.front();
  turns_.erase(turns_.begin());
  Sending& sending = sending_.find(number)->second;
  sending.in_turn = false;
  Storage& storage = sending.storages[sending.first_missing];
  Interval piece = storage.missing.first();
  uint64_t most = kPieceBytes;
  if (sending.flow == Flow::kEager) most = std::min<uint64_t>(most, kEagerBytes - sending.eager_bytes);
  piece.end = std::min(piece.end, piece.begin + most);
  const uint64_t size = piece.end - piece.begin;

  // The encoding of wire::BulkPiece, without a string.
  struct [[gnu::packed]] Body {
    uint64_t message_number;
    uint32_t storage;
    uint64_t offset;
  };
  const Body body{number, static_cast<uint32_t>(sending.first_missing), piece.begin};
  transport::OutFrame& frame = frames.emplace_back();
  wire::EncodeHeader(
      {.kind = wire::FrameKind::kBulk, .body_size = sizeof body, .bulk_size = size, .acknowledged = taken},
      frame.head.data());
  std::memcpy(frame.head.data() + wire::FrameHeader::kSize, &body, sizeof body);
  frame.head_size = wire::FrameHeader::kSize + sizeof body;
  frame.bulk = {.data = storage.source.data + piece.begin, .size = size, .keep = storage.source.keep};

  storage.missing.Remove(piece);
  storage.handed_out.Add(piece);
  if (sending.flow == Flow::kEager) sending.eager_bytes += size;
  FindTurn(number, sending);
}

// Gives the message a turn when it has a piece that may go, at the end of the line, and takes it away when not.
template <class Rules>
void BasicOutbox<Rules>::FindTurn(uint64_t number, Sending& sending) {
  while (sending.first_missing < sending.storages.size() && sending.storages[sending.first_missing].missing.empty()) {
    ++sending.first_missing;
  }
  const bool may_go =
      sending.flow == Flow::kFlowing || (sending.flow == Flow::kEager && sending.eager_bytes < kEagerBytes);
  const bool wants = may_go && number < next_ && sending.first_missing < sending.storages.size();
  if (wants && !sending.in_turn) turns_.push_back(number);
  if (!wants && sending.in_turn) turns_.erase(std::find(turns_.begin(), turns_.end(), number));
  sending.in_turn = wants;
}

// --- What the other side says.

template <class Rules>
Freed BasicOutbox<Rules>::Acked(uint64_t number) {
  Freed freed;
  if (ended_ || number == acked_) return freed;
  if (number < acked_) {
    wire::ThrowInvalid("it acknowledges message " + std::to_string(number) + " after message " +
                       std::to_string(acked_));
  }
  if (number >= next_) {
    wire::ThrowInvalid("it acknowledges message " + std::to_string(number) + ", and " + std::to_string(next_ - 1) +
                       " were sent");
  }
  FreeBodies(number, freed);
  return freed;
}

template <class Rules>
void BasicOutbox<Rules>::FreeBodies(uint64_t number, Freed& freed) {
  while (acked_ < number) {
    std::shared_ptr<const Message>& message = At(++acked_);
    retained_bytes_ -= message->bytes.size();
    if (!Rules::kBulkOutlivesHeader) {
      if (const auto at = sending_.find(acked_); at != sending_.end()) {
        for (Storage& storage : at->second.storages) FreeStorage(at->second, storage, freed);
        if (at->second.in_turn) turns_.erase(std::find(turns_.begin(), turns_.end(), acked_));
        sending_.erase(at);
      }
    }
    if (message->bytes.size() >= kLargeBody) {
      freed.shares.push_back(std::move(message));
    } else {
      message.reset();
    }
  }
  constexpr size_t kLargeRing = 4096;
  if (acked_ == last_ && kept_.size() > kLargeRing) std::exchange(kept_, {});  // after a burst
}

template <class Rules>
void BasicOutbox<Rules>::FreeStorage(Sending& sending, Storage& storage, Freed& freed) {
  if (!storage.kept) return;
  retained_bytes_ -= storage.source.size;
  freed.shares.push_back(std::move(storage.source.keep));
  freed.has_bulk = true;
  storage.kept = false;
  --sending.open;
}

template <class Rules>
Freed BasicOutbox<Rules>::Answered(const wire::PieceAnswer& answer) {
  Freed freed;
  if (ended_) return freed;
  const auto at = FindHandedOut(answer);
  Sending& sending = at->second;
  if (answer.verdict == wire::Verdict::kNow) {
    sending.flow = Flow::kFlowing;
  } else {
    Storage& storage = sending.storages[answer.range.storage];
    const Interval piece{answer.range.offset, answer.range.offset + answer.range.size};
    storage.handed_out.Remove(piece);
    if (answer.verdict == wire::Verdict::kLater) {
      storage.missing.Add(piece);
      sending.first_missing = std::min<size_t>(sending.first_missing, answer.range.storage);
      sending.flow = Flow::kParked;
    } else {
      if (sending.flow == Flow::kEager) sending.flow = Flow::kFlowing;
      if (storage.handed_out.empty() && storage.missing.empty()) FreeStorage(sending, storage, freed);
    }
  }
  FindTurn(answer.message, sending);
  if (sending.open == 0) sending_.erase(at);
  return freed;
}

// The message of an answer that may come: its header was handed out, and the range too.
template <class Rules>
auto BasicOutbox<Rules>::FindHandedOut(const wire::PieceAnswer& answer) -> typename Sendings::iterator {
  const auto refuse = [&answer](const std::string& what) {
    wire::ThrowInvalid("it answers for bytes of message " + std::to_string(answer.message) + what);
  };
  const auto at = sending_.find(answer.message);
  if (at == sending_.end() || answer.message >= next_) refuse(", of which none are on their way");
  const Sending& sending = at->second;
  const wire::StorageRange& range = answer.range;
  if (answer.verdict == wire::Verdict::kNow) {
    if (sending.flow != Flow::kParked) refuse(", which did not wait for memory");
  } else if (answer.verdict != wire::Verdict::kHad && answer.verdict != wire::Verdict::kLater) {
    refuse(" with unknown verdict " + std::to_string(static_cast<int>(answer.verdict)));
  } else if (range.storage >= sending.storages.size() || range.size == 0 || range.offset > UINT64_MAX - range.size ||
             !sending.storages[range.storage].handed_out.Contains({range.offset, range.offset + range.size})) {
    refuse(", storage " + std::to_string(range.storage) + ", " + std::to_string(range.size) + " from byte " +
           std::to_string(range.offset) + " on, which are not on their way");
  }
  return at;
}

// --- A new path.

template <class Rules>
Freed BasicOutbox<Rules>::Resume(const wire::ResumeState& told) {
  Freed freed;
  if (ended_) return freed;
  CheckTold(told);
  const uint64_t was_next = next_;
  if (Rules::kForgetWhatWasAcknowledged) FreeBodies(told.taken, freed);
  next_ = acked_ + 1;
  if (!Rules::kGoOnFromTaken) next_ = std::max(next_, was_next);
  turns_.clear();
  auto listed = told.arriving.begin();
  for (auto at = sending_.begin(); at != sending_.end();) {
    const uint64_t number = at->first;
    Sending& sending = at->second;
    sending.in_turn = false;
    if (number <= told.taken && (listed == told.arriving.end() || listed->message != number)) {  // complete
      for (Storage& storage : sending.storages) FreeStorage(sending, storage, freed);
      at = sending_.erase(at);
      continue;
    }
    const wire::ResumeState::Arriving nothing{.message = number};
    const bool was_parked = sending.flow == Flow::kParked;
    ResumeSending(sending, number <= told.taken ? *listed++ : nothing, freed);
    if (number > told.taken) sending.flow = Flow::kEager;
    if (!Rules::kResumeDecidesParked) {
      if (was_parked) sending.flow = Flow::kParked;
    }
    FindTurn(number, sending);
    ++at;
  }
  return freed;
}

template <class Rules>
void BasicOutbox<Rules>::ResumeSending(Sending& sending, const wire::ResumeState::Arriving& told, Freed& freed) {
  for (Storage& storage : sending.storages) {
    storage.handed_out.Clear();
    storage.missing.Clear();
    if (storage.source.size > 0) storage.missing.Add({0, storage.source.size});
  }
  for (const wire::StorageRange& range : told.present) {
    sending.storages[range.storage].missing.Remove({range.offset, range.offset + range.size});
  }
  for (Storage& storage : sending.storages) {
    if (storage.missing.empty()) FreeStorage(sending, storage, freed);
  }
  sending.first_missing = 0;
  sending.eager_bytes = 0;
  sending.flow = told.ready ? Flow::kFlowing : Flow::kParked;
}

template <class Rules>
void BasicOutbox<Rules>::CheckTold(const wire::ResumeState& told) const {
  if (told.taken < acked_) {
    wire::ThrowInvalid("it has taken " + std::to_string(told.taken) + " messages, and acknowledged " +
                       std::to_string(acked_) + " before");
  }
  if (told.taken > sent_) {
    wire::ThrowInvalid("it has taken " + std::to_string(told.taken) + " messages, and " + std::to_string(sent_) +
                       " were sent");
  }
  auto at = sending_.begin();
  const auto complete_until = [&](uint64_t number) {  // those up to `number` are not listed
    for (; at != sending_.end() && at->first < number; ++at) {
      for (const Storage& storage : at->second.storages) {
        if (!storage.missing.empty()) {
          wire::ThrowInvalid("it has all bytes of message " + std::to_string(at->first) + ", and not all were sent");
        }
      }
    }
  };
  for (const wire::ResumeState::Arriving& arriving : told.arriving) {
    const std::string message = "message " + std::to_string(arriving.message);
    if (arriving.message > told.taken) wire::ThrowInvalid("it lacks bytes of " + message + ", which it has not taken");
    complete_until(arriving.message);
    if (at == sending_.end() || at->first != arriving.message) {
      wire::ThrowInvalid("it lacks bytes of " + message + ", which has none that are not had");
    }
    CheckPresent(arriving.message, at->second, arriving);
    ++at;
  }
  complete_until(told.taken + 1);
  for (; at != sending_.end(); ++at) CheckPresent(at->first, at->second, {.message = at->first});
}

// What the other side calls present was sent, and what it has had before is among it.
template <class Rules>
void BasicOutbox<Rules>::CheckPresent(uint64_t number, const Sending& sending,
                                      const wire::ResumeState::Arriving& told) {
  const auto refuse = [number](uint32_t storage, const char* what, const char* why) {
    wire::ThrowInvalid(std::string("it ") + what + " bytes of storage " + std::to_string(storage) + " of message " +
                       std::to_string(number) + why);
  };
  auto range = told.present.begin();
  for (uint32_t i = 0; i < sending.storages.size(); ++i) {
    const Storage& storage = sending.storages[i];
    IntervalSet may_lack = storage.missing;
    for (const Interval& interval : storage.handed_out) may_lack.Add(interval);
    uint64_t end = 0;  // of the ranges so far
    const auto check_gap = [&](uint64_t until) {
      if (end < until && !may_lack.Contains({end, until})) refuse(i, "lacks", " that it has had before");
    };
    for (; range != told.present.end() && range->storage == i; ++range) {
      if (range->size == 0 || range->offset < end || range->offset > storage.source.size ||
          range->size > storage.source.size - range->offset) {
        refuse(i, "has", " that are out of order or outside of it");
      }
      if (storage.missing.Overlaps({range->offset, range->offset + range->size})) {
        refuse(i, "has", " that were not sent");
      }
      check_gap(range->offset);
      end = range->offset + range->size;
    }
    check_gap(storage.source.size);
  }
  if (range != told.present.end()) refuse(range->storage, "has", ", which is out of order or was not announced");
}

// --- The end.

template <class Rules>
Freed BasicOutbox<Rules>::End() {
  Freed freed;
  if (ended_) return freed;
  ended_ = true;
  FreeBodies(last_, freed);
  for (auto& [number, sending] : sending_) {
    for (Storage& storage : sending.storages) FreeStorage(sending, storage, freed);
  }
  sending_.clear();
  turns_.clear();
  std::exchange(kept_, {});
  next_ = last_ + 1;
  return freed;
}

template <class Rules>
std::string BasicOutbox<Rules>::Encoding() const {
  std::string out;
  wire::Append(out, last_, next_, sent_, acked_, static_cast<uint8_t>(ended_));
  const auto append = [&out](const IntervalSet& set) {
    for (const Interval& interval : set) wire::Append(out, interval.begin, interval.end);
    wire::Append(out, uint64_t{0});  // no interval ends there
  };
  for (const auto& [number, sending] : sending_) {
    wire::Append(out, number, sending.flow, sending.eager_bytes);
    for (const Storage& storage : sending.storages) {
      append(storage.missing);
      append(storage.handed_out);
    }
  }
  for (const uint64_t number : turns_) wire::Append(out, number);
  return out;
}

}  // namespace gradwire::rpc
