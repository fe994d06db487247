// Bodies of requests, replies and cancels. Each writer stands above its reader; docs/wire.md has the grammar.
#include "wire/call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "wire/cursor.h"
#include "wire/frame.h"
#include "wire/tensor_table.h"

namespace gradwire::wire {
namespace {

constexpr size_t kExtensionBytes = 6;   // of an empty one
constexpr size_t kReferenceBytes = 27;  // of one without fork and type name
constexpr size_t kForkBytes = 16;
constexpr int64_t kLongestTimeLeft = std::chrono::microseconds(kLongestLimit).count();

// --- Parts that requests and replies share.

void AppendExtensions(std::string& out, const std::vector<Extension>& extensions) {
  if (extensions.size() > std::numeric_limits<uint16_t>::max()) ThrowInvalid("more than 65535 extension fields");
  Append(out, static_cast<uint16_t>(extensions.size()));
  for (const Extension& extension : extensions) {
    Append(out, extension.tag);
    AppendCounted32(out, extension.bytes, "an extension field");
  }
}

std::vector<Extension> ReadExtensions(Cursor& in) {
  std::vector<Extension> extensions(in.Count16(kExtensionBytes));
  for (Extension& extension : extensions) {
    extension.tag = in.Get<uint16_t>();
    extension.bytes = in.Counted32();
  }
  return extensions;
}

size_t SizeOf(const std::vector<Extension>& extensions) {
  size_t size = sizeof(uint16_t);
  for (const Extension& extension : extensions) size += kExtensionBytes + extension.bytes.size();
  return size;
}

// The whole message up to the tail: `append_fields` writes what comes before the payload.
template <class AppendFields>
EncodedMessage EncodeWith(const Payload& payload, size_t fields_size, size_t inline_limit, AppendFields append_fields) {
  if (payload.local) throw Error(ErrorCode::kInternal, "a local object must be encoded before its message");
  const TensorTableWriter tensors(payload.tensors, inline_limit);
  // A guess for the tail: without type names it does not move the bytes once more.
  const size_t tail_size = 8 + 2 * kForkBytes + payload.references.size() * (kReferenceBytes + kForkBytes);
  const size_t size =
      FrameHeader::kSize + fields_size + sizeof(uint32_t) + payload.bytes.size() + tensors.byte_size() + tail_size;
  if (size > kMaxBodyBytes) {
    ThrowInvalid("a message of " + std::to_string(size) + " bytes beside its large tensors is too long to travel: " +
                 std::to_string(kMaxBodyBytes) + " are the most");
  }
  EncodedMessage message;
  std::string& out = message.bytes;
  out.reserve(size);
  out.append(FrameHeader::kSize, '\0');
  append_fields(out);
  AppendCounted32(out, payload.bytes, "a value");
  tensors.Write(out, message.bulk);
  return message;
}

// A part of the body: copied when it is small, else what stands around it is cut off.
std::string TakePart(std::string& body, std::string_view part) {
  constexpr size_t kSmall = size_t{16} << 10;
  if (part.size() < kSmall || part.size() < body.size() / 2) return std::string(part);
  const auto begin = static_cast<size_t>(part.data() - body.data());
  body.resize(begin + part.size());
  body.erase(0, begin);
  return std::move(body);
}

void AppendReferences(std::string& out, const std::vector<ReferenceRecord>& references) {
  Append(out, static_cast<uint32_t>(references.size()));
  for (const ReferenceRecord& record : references) {
    Append(out, record.owner.packed());
    AppendId(out, record.rref);
    Append(out, static_cast<uint8_t>(record.fork.has_value()));
    if (record.fork) AppendId(out, *record.fork);
    AppendCounted16(out, std::string_view(record.type_name).substr(0, UINT16_MAX), "a type name");
  }
}

std::vector<ReferenceRecord> ReadReferences(Cursor& in) {
  std::vector<ReferenceRecord> references(in.Count32(kReferenceBytes));
  for (ReferenceRecord& record : references) {
    record.owner = WorkerId::FromPacked(in.Get<uint64_t>());
    record.rref = in.GetId<RRefId>();
    if (in.Flag()) record.fork = in.GetId<ForkId>();
    record.type_name = in.Counted16();
  }
  return references;
}

// --- Failure.

void AppendFailure(std::string& out, const Failure& failure) {
  Append(out, failure.code);
  AppendCounted32(out, failure.text, "an error text");
  AppendCounted32(out, failure.worker, "a worker name");
  AppendCounted32(out, failure.type_name, "a type name");
  AppendCounted32(out, failure.traceback, "a traceback");
  AppendCounted32(out, failure.pickled, "a pickled exception");
}

Failure ReadFailure(Cursor& in) {
  Failure failure;
  failure.code = in.Get<ErrorCode>();
  if (ErrorCodeName(failure.code) == "Unknown") {
    ThrowInvalid("unknown error code " + std::to_string(static_cast<int>(failure.code)));
  }
  failure.text = in.Counted32();
  failure.worker = in.Counted32();
  failure.type_name = in.Counted32();
  failure.traceback = in.Counted32();
  failure.pickled = in.Counted32();
  return failure;
}

size_t SizeOf(const Failure& failure) {
  return 1 + 5 * sizeof(uint32_t) + failure.text.size() + failure.worker.size() + failure.type_name.size() +
         failure.traceback.size() + failure.pickled.size();
}

}  // namespace

// --- Request.

EncodedMessage Encode(const Request& request, size_t inline_limit) {
  const size_t fields_size =
      2 * sizeof(uint64_t) + sizeof(uint16_t) + request.function.size() + SizeOf(request.extensions);
  return EncodeWith(request.args, fields_size, inline_limit, [&](std::string& out) {
    Append(out, request.call_id, request.time_left_us);
    AppendCounted16(out, request.function, "a function name");
    AppendExtensions(out, request.extensions);
  });
}

void SetTimeLeft(EncodedMessage& message, int64_t time_left_us) {
  std::memcpy(message.bytes.data() + FrameHeader::kSize + sizeof(CallId), &time_left_us, sizeof time_left_us);
}

void AppendTail(const Request& request, EncodedMessage& message) {
  std::string& out = message.bytes;
  Append(out, static_cast<uint8_t>(request.keep_as.has_value()));
  if (request.keep_as) {
    AppendId(out, request.keep_as->rref);
    AppendId(out, request.keep_as->fork);
  }
  AppendReferences(out, request.references);
}

Request DecodeRequest(std::string body, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready) {
  Cursor in(body);
  Request request;
  request.call_id = in.Get<CallId>();
  request.time_left_us = in.Get<int64_t>();
  if (request.time_left_us < 0) ThrowInvalid("request with a negative time");
  request.time_left_us = std::min(request.time_left_us, kLongestTimeLeft);
  request.function = in.Counted16();
  request.extensions = ReadExtensions(in);
  const std::string_view value = in.Counted32();
  request.args.tensors = ReadTensorTable(in, max_bulk, targets, ready);
  if (in.Flag()) {
    const auto rref = in.GetId<RRefId>();
    request.keep_as = KeepAs{.rref = rref, .fork = in.GetId<ForkId>()};
  }
  request.references = ReadReferences(in);
  in.ExpectEnd();
  request.args.bytes = TakePart(body, value);
  return request;
}

// --- Reply.

EncodedMessage Encode(const Reply& reply, size_t inline_limit) {
  const size_t fields_size =
      sizeof(uint64_t) + 1 + (reply.failure ? SizeOf(*reply.failure) : 0) + SizeOf(reply.extensions);
  return EncodeWith(reply.value, fields_size, inline_limit, [&](std::string& out) {
    Append(out, reply.call_id, static_cast<uint8_t>(reply.failure.has_value()));
    if (reply.failure) AppendFailure(out, *reply.failure);
    AppendExtensions(out, reply.extensions);
  });
}

void AppendTail(const Reply& reply, EncodedMessage& message) { AppendReferences(message.bytes, reply.references); }

Reply DecodeReply(std::string body, size_t max_bulk, std::vector<BulkTarget>& targets, bool& ready) {
  Cursor in(body);
  Reply reply;
  reply.call_id = in.Get<CallId>();
  if (in.Flag()) reply.failure = ReadFailure(in);
  reply.extensions = ReadExtensions(in);
  const std::string_view value = in.Counted32();
  reply.value.tensors = ReadTensorTable(in, max_bulk, targets, ready);
  reply.references = ReadReferences(in);
  in.ExpectEnd();
  reply.value.bytes = TakePart(body, value);
  return reply;
}

// --- Cancel.

EncodedMessage Encode(const Cancel& cancel) {
  EncodedMessage message;
  message.bytes.append(FrameHeader::kSize, '\0');
  Append(message.bytes, cancel.call_id);
  return message;
}

Cancel DecodeCancel(std::string_view body) {
  Cursor in(body);
  const Cancel cancel{.call_id = in.Get<CallId>()};
  in.ExpectEnd();
  return cancel;
}

// --- Credit.

EncodedMessage Encode(const Credit& credit) {
  EncodedMessage message;
  message.bytes.append(FrameHeader::kSize, '\0');
  Append(message.bytes, credit.begun);
  return message;
}

Credit DecodeCredit(std::string_view body) {
  Cursor in(body);
  const Credit credit{.begun = in.Get<uint64_t>()};
  in.ExpectEnd();
  return credit;
}

// --- A piece of a storage.

std::string Encode(const BulkPiece& piece) {
  std::string out;
  Append(out, piece.message_number, piece.storage, piece.offset);
  return out;
}

BulkPiece DecodeBulkPiece(std::string_view body) {
  Cursor in(body);
  BulkPiece piece;
  piece.message_number = in.Get<uint64_t>();
  piece.storage = in.Get<uint32_t>();
  piece.offset = in.Get<uint64_t>();
  in.ExpectEnd();
  return piece;
}

}  // namespace gradwire::wire
