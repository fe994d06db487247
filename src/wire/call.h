// Call records: Request, Reply, Cancel, and how they become one encoded message (docs/wire.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Storage.h>

#include "base/ids.h"
#include "gradwire/error.h"
#include "gradwire/payload.h"

namespace gradwire::wire {

// What an upper layer adds to a call. An unknown optional field is skipped, an unknown required one is an error.
struct Extension {
  uint16_t tag = 0;  // one number per layer's use, listed in docs/wire.md; the top bit says required
  std::string bytes;

  static constexpr uint16_t kRequired = 0x8000;
};

// One row of a message's RRef table, made in the send step from the payload's references (O5).
struct ReferenceRecord {
  WorkerId owner;
  RRefId rref;
  std::optional<ForkId> fork;  // the receiver's fork; none when the receiver is the owner
  std::string type_name;       // what the owner said of the value's type; may be empty
};

// The result stays with the callee, under these ids.
struct KeepAs {
  RRefId rref;
  ForkId fork;
};

struct Request {
  CallId call_id = 0;
  std::string function;
  int64_t time_left_us = 0;  // of a written deadline (C2); 0: none
  std::vector<Extension> extensions;
  Payload args;
  std::optional<KeepAs> keep_as;            // known in the send step
  std::vector<ReferenceRecord> references;  // known in the send step; one per args.references
  std::shared_ptr<void> lease;              // does not travel: what its memory counts against, until it is begun
};

struct Reply {
  CallId call_id = 0;
  std::optional<Failure> failure;  // the payload is empty then
  std::vector<Extension> extensions;
  Payload value;
  std::vector<ReferenceRecord> references;
  std::shared_ptr<void> lease;  // as of a Request, until it is delivered
};

struct Cancel {
  CallId call_id = 0;
};

// How many requests of the other side have been begun, in all (C4).
struct Credit {
  uint64_t begun = 0;
};

// Bytes of a tensor that go behind the message, by reference: `keep` holds them.
struct BulkSource {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> keep;
};

// A message ready for the send step: room for the frame header is left in front.
struct EncodedMessage {
  std::string bytes;             // 32 bytes for the header, then the body but for its tail
  std::vector<BulkSource> bulk;  // storage i of those announced in the body
};

// Everything of the record but `keep_as` and `references`. Throws Error(kInvalid) for a tensor that cannot travel (its
// text names the device or layout). Storages under `inline_limit` bytes are copied into the body.
inline constexpr size_t kInlineLimit = 16 * 1024;
EncodedMessage Encode(const Request& request, size_t inline_limit = kInlineLimit);
EncodedMessage Encode(const Reply& reply, size_t inline_limit = kInlineLimit);
EncodedMessage Encode(const Cancel& cancel);
EncodedMessage Encode(const Credit& credit);
// Of a Request that waited between Encode() and its send step.
void SetTimeLeft(EncodedMessage& message, int64_t time_left_us);

// The tail: in the send step, once. Those of a Cancel and a Credit have none.
void AppendTail(const Request& request, EncodedMessage& message);
void AppendTail(const Reply& reply, EncodedMessage& message);

// Where the bytes of an announced storage go. `keep` holds the memory until they have come: a message may announce a
// storage that none of its tensors names.
struct BulkTarget {
  std::byte* data = nullptr;  // nullptr: there is no memory yet
  size_t size = 0;
  std::shared_ptr<const void> keep;
  c10::Storage storage;  // that tensors stand on; its memory is `data`
};

// `body` is what followed the frame header; a large value is left in its memory. Tensors are made at once, on storages
// that are returned in `targets`; their bytes come later. Memory for them is taken at once up to kMemoryAtOnce bytes in
// all. For more it may take a while, or not be had, so there is none and `ready` becomes false: before anybody looks at
// the tensors, Allocate() must have found it and all bytes must be there. Throws Error(kInvalid) for bad bytes, and for
// storages of more than `max_bulk` bytes in all. Never reads outside `body`.
inline constexpr size_t kMemoryAtOnce = size_t{256} << 10;
Request DecodeRequest(std::string body, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready);
Reply DecodeReply(std::string body, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready);
Cancel DecodeCancel(std::string_view body);
Credit DecodeCredit(std::string_view body);

// Takes the memory of storages that have none, on any thread; many of them take a while. Throws Error(kOverloaded),
// which names the size, when it is not to be had; then nothing has been taken.
void Allocate(std::vector<BulkTarget>& targets);

// For the receiver, once all bytes of the storages are there and before anybody uses the tensors, not under a role:
// looks at what could not be looked at earlier: the indices of sparse tensors (kInvalid), and whether there was memory
// for all of them (kOverloaded). Cheap.
void CheckArrived(const Payload& payload);

// Body of a kBulk frame: which piece of which storage of which message it is.
struct BulkPiece {
  uint64_t message_number = 0;
  uint32_t storage = 0;
  uint64_t offset = 0;  // bytes
};
std::string Encode(const BulkPiece& piece);
BulkPiece DecodeBulkPiece(std::string_view body);

}  // namespace gradwire::wire
