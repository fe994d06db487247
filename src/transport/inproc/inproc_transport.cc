#include "transport/inproc/inproc_transport.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace gradwire::transport {

// One end. What the other end sends is queued here and delivered by one task at a time.
class InprocConnection final : public Connection, public std::enable_shared_from_this<InprocConnection> {
 public:
  InprocConnection(std::shared_ptr<Executor> executor, std::string description)
      : executor_(std::move(executor)), description_(std::move(description)) {}

  static void Join(const std::shared_ptr<InprocConnection>& a, const std::shared_ptr<InprocConnection>& b) {
    a->other_ = b;
    b->other_ = a;
  }

  void Start(std::shared_ptr<Receiver> receiver) override {
    {
      std::lock_guard lock(mutex_);
      receiver_ = std::move(receiver);
    }
    Schedule();
  }

  void Queue(OutFrame frame, Lane lane) override {
    if (const auto other = other_.lock()) other->Take(std::move(frame), lane);
  }
  void Flush() override {
    if (const auto other = other_.lock()) other->Schedule();
  }

  void Close(Failure reason) override {
    // The other end still gets what was queued before.
    if (const auto other = other_.lock()) {
      other->End({.code = ErrorCode::kDisconnected, .text = "the other end closed the connection"}, false);
      other->Schedule();
    }
    End(std::move(reason), true);
    Schedule();
  }

  void SetBodyLimit(uint32_t bytes) override { body_limit_.store(bytes); }
  std::string description() const override { return description_; }

 private:
  void Take(OutFrame frame, Lane lane) {
    std::lock_guard lock(mutex_);
    if (!ended_) (lane == Lane::kHeaders ? headers_ : bulk_).push_back(std::move(frame));
  }

  void End(Failure reason, bool at_once) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    reason_ = std::move(reason);
    if (at_once) {
      headers_.clear();
      bulk_.clear();
    }
  }

  // Posts the delivering task when there is something to deliver and none is posted.
  void Schedule() {
    {
      std::lock_guard lock(mutex_);
      const bool due = receiver_ && !closed_ && (ended_ || !headers_.empty() || !bulk_.empty());
      if (!due || delivering_) return;
      delivering_ = true;
    }
    executor_->Post([self = shared_from_this()] { self->Deliver(); });
  }

  // Delivers one frame, so that simulation may choose what comes between any two.
  void Deliver() {
    OutFrame frame;
    bool closing = false;
    std::shared_ptr<Receiver> receiver;
    {
      std::lock_guard lock(mutex_);
      receiver = receiver_;
      auto& lane = headers_.empty() ? bulk_ : headers_;
      if (lane.empty()) {
        closing = ended_ && !std::exchange(closed_, true);
        if (closing) receiver_.reset();
      } else {
        frame = std::move(lane.front());
        lane.pop_front();
      }
    }
    if (closing) {
      receiver->OnClosed(reason_);
    } else if (!frame.bytes.empty() && !Hand(*receiver, frame)) {
      Schedule();
    }
    {
      std::lock_guard lock(mutex_);
      delivering_ = false;
    }
    Schedule();
  }

  // False when the frame or its receiver was bad: the connection is being closed.
  bool Hand(Receiver& receiver, const OutFrame& frame) {
    try {
      const wire::FrameHeader header = wire::DecodeHeader(frame.bytes.data());
      if (header.body_size > body_limit_.load()) {
        throw Error(ErrorCode::kInvalid, "a body of " + std::to_string(header.body_size) + " bytes");
      }
      std::string body = frame.bytes.substr(wire::FrameHeader::kSize);
      if (header.bulk_size > 0) {
        std::byte* const target = receiver.BulkTarget(header, body);
        if (!target) throw Error(ErrorCode::kInvalid, "bulk bytes that nobody awaits");
        std::memcpy(target, frame.bulk.data, header.bulk_size);
      }
      receiver.OnFrame(header, std::move(body));
      return true;
    } catch (const Error& error) {
      Close(error.failure());
      return false;
    }
  }

  const std::shared_ptr<Executor> executor_;
  const std::string description_;
  std::weak_ptr<InprocConnection> other_;  // constant once joined
  std::atomic<uint32_t> body_limit_{kBodyBeforeHandshake};

  std::mutex mutex_;  // guards all below
  std::shared_ptr<Receiver> receiver_;
  std::deque<OutFrame> headers_, bulk_;
  bool delivering_ = false;
  bool ended_ = false;   // nothing is taken any more
  bool closed_ = false;  // OnClosed was called
  Failure reason_;       // constant once ended
};

struct InprocTransport::State {
  std::mutex mutex;
  bool stopped = false;
  AcceptCallback accept;
  std::vector<std::shared_ptr<InprocConnection>> made, accepted;
};

InprocTransport::InprocTransport(InprocNetwork& network, std::shared_ptr<Executor> executor)
    : network_(network), executor_(std::move(executor)), state_(std::make_shared<State>()) {}

InprocTransport::~InprocTransport() { Stop(); }

std::string InprocTransport::Listen(AcceptCallback accept) {
  {
    std::lock_guard lock(state_->mutex);
    state_->accept = std::move(accept);
  }
  std::lock_guard lock(network_.mutex_);
  address_ = "inproc://" + std::to_string(++network_.last_address_);
  network_.listening_[address_] = this;
  return address_;
}

void InprocTransport::Connect(const std::string& address, TimePoint, ConnectCallback callback) {
  std::shared_ptr<State> far;
  std::shared_ptr<Executor> far_executor;
  {
    std::lock_guard lock(network_.mutex_);
    if (auto it = network_.listening_.find(address); it != network_.listening_.end()) {
      far = it->second->state_;
      far_executor = it->second->executor_;
    }
  }
  if (!far) {
    executor_->Post([address, callback = std::move(callback)]() mutable {
      callback(nullptr, {.code = ErrorCode::kUnreachable, .text = "nobody listens at " + address});
    });
    return;
  }
  auto near_end = std::make_shared<InprocConnection>(executor_, "inproc " + address);
  auto far_end = std::make_shared<InprocConnection>(far_executor, "inproc at " + address);
  InprocConnection::Join(near_end, far_end);
  {
    std::lock_guard lock(state_->mutex);
    state_->made.push_back(near_end);
  }
  far_executor->Post([far, far_end] {
    AcceptCallback accept;
    {
      std::lock_guard lock(far->mutex);
      if (!far->stopped) {
        far->accepted.push_back(far_end);
        accept = far->accept;
      }
    }
    if (accept) {
      accept(far_end);
    } else {
      far_end->Close({.code = ErrorCode::kDisconnected, .text = "nobody accepts here any more"});
    }
  });
  executor_->Post([near_end, callback = std::move(callback)]() mutable { callback(near_end, {}); });
}

void InprocTransport::Stop() {
  {
    std::lock_guard lock(network_.mutex_);
    auto it = network_.listening_.find(address_);
    if (it != network_.listening_.end() && it->second == this) network_.listening_.erase(it);
  }
  std::vector<std::shared_ptr<InprocConnection>> connections;
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    connections.swap(state_->made);
    for (auto& connection : state_->accepted) connections.push_back(std::move(connection));
    state_->accepted.clear();
  }
  // Their last callbacks run on the executor, which is stopped after its transports.
  for (const auto& connection : connections) {
    connection->Close({.code = ErrorCode::kDisconnected, .text = "the transport has stopped"});
  }
}

void InprocNetwork::Cut(const std::string& address) {
  std::vector<std::shared_ptr<InprocConnection>> connections;
  {
    std::lock_guard lock(mutex_);
    auto it = listening_.find(address);
    if (it == listening_.end()) return;
    std::lock_guard state_lock(it->second->state_->mutex);
    connections.swap(it->second->state_->accepted);
  }
  for (const auto& connection : connections) {
    connection->Close({.code = ErrorCode::kDisconnected, .text = "the link was cut"});
  }
}

}  // namespace gradwire::transport
