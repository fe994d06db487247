#include "rpc/session.h"

#include <algorithm>

#include "rpc/borrowed_read.h"

namespace gradwire::rpc {
namespace {

// Pieces of this size let small messages pass large tensors, and cost one header each.
constexpr size_t kPieceBytes = size_t{1} << 20;

constexpr std::chrono::microseconds kQuickAnswer{100};
constexpr uint32_t kMostSkipped = 64;

[[noreturn]] void Refuse(const Peer& peer, const std::string& what) {
  throw Error(ErrorCode::kInvalid, "worker '" + peer.name + "' broke the protocol: " + what);
}

}  // namespace

std::optional<Failure> Session::Enqueue(wire::FrameKind kind, wire::EncodedMessage message) {
  bool connect = false;
  {
    std::lock_guard lock(send_mutex_);
    if (state_ == State::kEnded) return ended_because_;
    if (state_ == State::kIdle) {
      state_ = State::kConnecting;
      connect = true;
    }
    const uint64_t number = ++sent_;
    std::string header;
    wire::EncodeHeader({.kind = kind,
                        .body_size = static_cast<uint32_t>(message.bytes.size() - wire::FrameHeader::kSize),
                        .number = number,
                        .acknowledged = handled_.load(std::memory_order_relaxed)},
                       header);
    std::copy(header.begin(), header.end(), message.bytes.begin());
    QueueLocked({.bytes = std::move(message.bytes), .bulk = {}}, transport::Lane::kHeaders);
    for (uint32_t storage = 0; storage < message.bulk.size(); ++storage) {
      const wire::BulkSource& source = message.bulk[storage];
      for (size_t offset = 0; offset < source.size; offset += kPieceBytes) {
        const size_t size = std::min(kPieceBytes, source.size - offset);
        const std::string body = wire::Encode({.message_number = number, .storage = storage, .offset = offset});
        transport::OutFrame frame;
        wire::EncodeHeader(
            {.kind = wire::FrameKind::kBulk, .body_size = static_cast<uint32_t>(body.size()), .bulk_size = size},
            frame.bytes);
        frame.bytes += body;
        frame.bulk = {.data = source.data + offset, .size = size, .keep = source.keep};
        QueueLocked(std::move(frame), transport::Lane::kBulk);
      }
    }
  }
  if (connect) host_->Connect(shared_from_this());
  return std::nullopt;
}

void Session::QueueLocked(transport::OutFrame frame, transport::Lane lane) {
  if (out_) {
    out_->Queue(std::move(frame), lane);
  } else {
    backlog_.emplace_back(std::move(frame), lane);
  }
}

void Session::Flush() {
  std::shared_ptr<transport::Connection> out;
  {
    std::lock_guard lock(send_mutex_);
    out = out_;
  }
  if (out) out->Flush();
}

void Session::Attach(std::shared_ptr<transport::Connection> connection) {
  {
    std::lock_guard lock(receive_mutex_);
    ++open_connections_;
  }
  std::optional<Failure> ended;
  {
    std::lock_guard lock(send_mutex_);
    if (state_ != State::kEnded) {
      connections_.push_back(connection);
      if (!out_) {
        out_ = connection;
        state_ = State::kOpen;
        for (auto& [frame, lane] : backlog_) out_->Queue(std::move(frame), lane);
        backlog_.clear();
        backlog_.shrink_to_fit();
      }
    } else {
      ended = ended_because_;
    }
  }
  if (ended) {
    connection->Close(*ended);
  } else {
    Flush();
  }
}

void Session::SetIncoming(std::shared_ptr<transport::Connection> connection) {
  std::lock_guard lock(send_mutex_);
  if (state_ == State::kEnded) return;
  if (in_) Refuse(peer_, "it sends its messages over two connections");
  in_ = std::move(connection);
}

void Session::ReadUntil(const Event& event) {
  // Counts may be lost to another thread: they only weigh costs.
  if (const uint32_t skip = to_skip_.load(std::memory_order_relaxed)) {
    to_skip_.store(skip - 1, std::memory_order_relaxed);
    return;
  }
  std::shared_ptr<transport::Connection> connection;
  {
    std::lock_guard lock(send_mutex_);
    connection = in_ ? in_ : out_;
  }
  if (!connection) return;
  {
    const BorrowedRead plain;
    connection->ReadUntil(event, kQuickAnswer);
  }
  if (event.is_set()) {
    misses_.store(0, std::memory_order_relaxed);
  } else {
    const uint32_t misses = misses_.load(std::memory_order_relaxed) + 1;
    misses_.store(misses, std::memory_order_relaxed);
    to_skip_.store(std::min(kMostSkipped, 1u << std::min(misses, 16u)), std::memory_order_relaxed);
  }
}

std::byte* Session::BulkTarget(const wire::FrameHeader& header, std::string_view body) {
  const wire::BulkPiece piece = wire::DecodeBulkPiece(body);
  std::lock_guard lock(receive_mutex_);
  auto it = arriving_.find(piece.message_number);
  if (it == arriving_.end()) Refuse(peer_, "bytes for a message that awaits none");
  Arriving& message = it->second;
  if (piece.storage >= message.storages.size()) Refuse(peer_, "bytes for a storage that was not announced");
  const wire::BulkTarget& storage = message.storages[piece.storage];
  // A peer sends the pieces of a storage in order, over one connection: no gap, no overlap.
  if (piece.offset != message.received[piece.storage] || header.bulk_size > storage.size - piece.offset) {
    Refuse(peer_, "bytes outside their storage");
  }
  return storage.data + piece.offset;
}

void Session::OnBulk(const wire::FrameHeader& header, std::string_view body) {
  const wire::BulkPiece piece = wire::DecodeBulkPiece(body);
  // BulkTarget() has checked the others; a piece without bytes would complete a storage a second time.
  if (header.bulk_size == 0) Refuse(peer_, "a piece of a storage without bytes");
  Task complete;
  {
    std::lock_guard lock(receive_mutex_);
    auto it = arriving_.find(piece.message_number);
    if (it == arriving_.end()) return;  // the session ended meanwhile
    Arriving& message = it->second;
    uint64_t& received = message.received[piece.storage];
    received += header.bulk_size;
    if (received == message.storages[piece.storage].size && --message.open == 0) {
      complete = std::move(message.complete);
      arriving_.erase(it);
    }
  }
  if (complete) complete();
}

void Session::OnFrame(const wire::FrameHeader& header, std::string_view body) {
  if (header.kind == wire::FrameKind::kBulk) return OnBulk(header, body);
  if (header.kind == wire::FrameKind::kLeave) {
    return End(
        {.code = ErrorCode::kDisconnected, .text = "worker '" + peer_.name + "' has left", .worker = peer_.name});
  }
  const uint64_t expected = handled_.load(std::memory_order_relaxed) + 1;
  if (header.number != expected) {
    Refuse(peer_, "message " + std::to_string(header.number) + " where " + std::to_string(expected) + " comes next");
  }
  {
    std::lock_guard lock(send_mutex_);
    if (header.acknowledged > sent_) Refuse(peer_, "it acknowledges what was not sent");
  }
  const auto self = shared_from_this();
  std::vector<wire::BulkTarget> storages;
  switch (header.kind) {
    case wire::FrameKind::kRequest: {
      Task complete = host_->OnRequest(self, wire::DecodeRequest(body, host_->max_bulk_bytes(), storages));
      handled_.store(header.number, std::memory_order_relaxed);
      return Arrive(header.number, std::move(complete), std::move(storages));
    }
    case wire::FrameKind::kReply: {
      Task complete = host_->OnReply(self, wire::DecodeReply(body, host_->max_bulk_bytes(), storages));
      handled_.store(header.number, std::memory_order_relaxed);
      return Arrive(header.number, std::move(complete), std::move(storages));
    }
    case wire::FrameKind::kCancel:
      host_->OnCancel(self, wire::DecodeCancel(body));
      handled_.store(header.number, std::memory_order_relaxed);
      return;
    case wire::FrameKind::kCredit:
      host_->Admit(credit_.Grant(wire::DecodeCredit(body).begun));
      handled_.store(header.number, std::memory_order_relaxed);
      return;
    default: Refuse(peer_, "a frame that belongs to the handshake");
  }
}

void Session::Arrive(uint64_t number, Task complete, std::vector<wire::BulkTarget> storages) {
  const auto lacks = static_cast<size_t>(
      std::count_if(storages.begin(), storages.end(), [](const wire::BulkTarget& s) { return s.size > 0; }));
  if (lacks == 0) return complete();
  Arriving message{std::move(complete), std::move(storages), {}, lacks};
  message.received.resize(message.storages.size());
  std::lock_guard lock(receive_mutex_);
  arriving_.emplace(number, std::move(message));
}

void Session::OnConnectionClosed(const Failure& reason) {
  End(reason);
  std::vector<Task> dropped;
  {
    std::lock_guard lock(receive_mutex_);
    if (--open_connections_ > 0) return;
    for (auto& [number, message] : arriving_) dropped.push_back(std::move(message.complete));
    arriving_.clear();
  }
  if (!dropped.empty()) host_->Discard(std::move(dropped));
}

void Session::End(const Failure& reason, bool announce) { EndIn(reason, announce, /*only_unless_open=*/false); }
void Session::ConnectFailed(const Failure& reason) { EndIn(reason, /*announce=*/false, /*only_unless_open=*/true); }

void Session::EndIn(const Failure& reason, bool announce, bool only_unless_open) {
  std::vector<std::shared_ptr<transport::Connection>> connections;
  std::vector<std::pair<transport::OutFrame, transport::Lane>> unsent;
  {
    std::lock_guard lock(send_mutex_);
    if (state_ == State::kEnded || (only_unless_open && state_ == State::kOpen)) return;
    state_ = State::kEnded;
    ended_because_ = reason;
    connections.swap(connections_);
    unsent.swap(backlog_);
    if (announce && out_) {
      transport::OutFrame leave;
      wire::EncodeHeader({.kind = wire::FrameKind::kLeave}, leave.bytes);
      out_->Queue(std::move(leave), transport::Lane::kHeaders);  // Close() writes it
    }
    out_.reset();
    in_.reset();
  }
  for (const auto& connection : connections) connection->Close(reason);
  host_->Admit(credit_.Close());  // they find out that the session has ended
  host_->OnEnded(shared_from_this(), reason);
}

std::optional<Failure> Session::ended_because() const {
  std::lock_guard lock(send_mutex_);
  if (state_ != State::kEnded) return std::nullopt;
  return ended_because_;
}

}  // namespace gradwire::rpc
