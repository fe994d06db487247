#include "transport/tcp/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/tcp/tcp_address.h"

namespace gradwire::transport {
namespace {

constexpr std::chrono::seconds kCloseLimit{1};
constexpr size_t kWritesPerTurn = 16;  // of one thread; then the loop goes on for it

}  // namespace

// While one stands on a thread, Flush() on that thread waits until it ends: what a batch of frames is answered with
// leaves in few system calls.
class TcpConnection::Turn {
 public:
  Turn() : outer_(std::exchange(current_, this)) {}
  ~Turn() {
    current_ = outer_;
    for (const auto& connection : to_flush_) connection->Flush();
  }
  static bool Defers(TcpConnection* connection) {
    if (!current_) return false;
    auto& waiting = current_->to_flush_;
    if (waiting.empty() || waiting.back().get() != connection) waiting.push_back(connection->shared_from_this());
    return true;
  }

 private:
  static thread_local Turn* current_;
  Turn* const outer_;
  std::vector<std::shared_ptr<TcpConnection>> to_flush_;
};
thread_local TcpConnection::Turn* TcpConnection::Turn::current_ = nullptr;

void OpenConnections::Add(const std::shared_ptr<TcpConnection>& connection) {
  std::lock_guard lock(mutex_);
  connections_.emplace(connection.get(), connection);
}

void OpenConnections::Remove(TcpConnection* connection) {
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) empty_.notify_all();
}

void OpenConnections::WaitUntilEmpty(std::chrono::seconds limit) {
  std::unique_lock lock(mutex_);
  if (!empty_.wait_for(lock, limit, [this] { return connections_.empty(); })) {
    Log(LogLevel::kError, "tcp: " + std::to_string(connections_.size()) + " connections did not end");
  }
}

std::vector<std::shared_ptr<TcpConnection>> OpenConnections::All() const {
  std::vector<std::shared_ptr<TcpConnection>> all;
  std::lock_guard lock(mutex_);
  for (const auto& [raw, weak] : connections_) {
    if (auto connection = weak.lock()) all.push_back(std::move(connection));
  }
  return all;
}

TcpConnection::TcpConnection(Loop& loop, int fd, std::shared_ptr<OpenConnections> open)
    : loop_(loop),
      fd_(fd),
      open_(std::move(open)),
      description_("tcp " + TcpAddress::Remote(fd).HostAndPort()),
      reader_(body_limit_, closing_) {
  const int one = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

std::shared_ptr<TcpConnection> TcpConnection::Make(Loop& loop, int fd, std::shared_ptr<OpenConnections> open) {
  std::shared_ptr<TcpConnection> connection(new TcpConnection(loop, fd, std::move(open)));
  connection->open_->Add(connection);
  return connection;
}

TcpConnection::~TcpConnection() {
  if (over_) return;
  // Never started: nobody is to be told.
  open_->Remove(this);
  close(fd_);
}

void TcpConnection::Start(std::shared_ptr<Receiver> receiver) {
  Failure reason;
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      receiver_ = std::move(receiver);
      loop_.Post([self = shared_from_this()] { self->BeginFromLoop(); });
      return;
    }
    reason = end_reason_;
  }
  receiver->OnClosed(reason);  // nobody else has the read role any more
}

void TcpConnection::BeginFromLoop() {
  if (over_) return;
  {
    std::lock_guard lock(mutex_);
    reading_for_ = receiver_;
  }
  watched_ = true;
  // Both directions once, on their edges: no epoll_ctl while frames flow.
  loop_.Watch(fd_, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
              [self = shared_from_this()](uint32_t events) { self->OnReadyFromLoop(events); });
}

void TcpConnection::OnReadyFromLoop(uint32_t events) {
  if (over_) return;
  if ((events & EPOLLOUT) && out_.OnWritable()) WriteWithRole();
  if (events & ~uint32_t{EPOLLOUT}) ReadFromLoop((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

void TcpConnection::ReadFromLoop(bool to_the_end) {
  if (over_) return;
  if (closing_) return DiscardFromLoop();
  Turn turn;
  try {
    switch (reader_.Read(fd_, to_the_end, *reading_for_)) {
      case FrameReader::Result::kDrained: return;
      case FrameReader::Result::kMore:
        return loop_.Post([self = shared_from_this(), to_the_end] { self->ReadFromLoop(to_the_end); });
      case FrameReader::Result::kEnd: return EndBrokenFromLoop(reader_.end_errno());
    }
  } catch (const Error& error) {
    Failure failure = error.failure();
    failure.text = description_ + ": " + failure.text;
    Log(LogLevel::kWarning, failure.text + "; connection closed");
    EndFromLoop(failure);
  } catch (const std::exception& error) {
    const std::string text = description_ + ": " + error.what();
    Log(LogLevel::kError, text + "; connection closed");
    EndFromLoop({.code = ErrorCode::kInternal, .text = text});
  }
}

// After Close(): unread bytes would make the kernel reset the connection, and with it what the other side has not read.
void TcpConnection::DiscardFromLoop() {
  switch (reader_.Discard(fd_)) {
    case FrameReader::Result::kDrained: return;
    case FrameReader::Result::kMore: return loop_.Post([self = shared_from_this()] { self->ReadFromLoop(true); });
    case FrameReader::Result::kEnd: return EndBrokenFromLoop(0);
  }
}

void TcpConnection::EndBrokenFromLoop(int error) {
  std::string text = description_ + ": ";
  if (error) {
    text += std::strerror(error);
  } else {
    text += reader_.between_frames() ? "the other side closed the connection"
                                     : "the other side closed the connection in the middle of a frame";
  }
  EndFromLoop({.code = ErrorCode::kDisconnected, .text = std::move(text)});
}

void TcpConnection::EndFromLoop(const Failure& reason) {
  if (over_) return;
  over_ = true;
  std::shared_ptr<Receiver> receiver;
  Failure told;
  {
    std::lock_guard lock(mutex_);
    if (!closing_.exchange(true)) end_reason_ = reason;  // after Close() its reason counts
    told = end_reason_;
    ended_ = true;
    receiver = std::move(receiver_);
    if (close_limit_) loop_.Cancel(close_limit_);
  }
  if (watched_) loop_.Unwatch(fd_);
  reading_for_.reset();
  if (out_.Stop()) {
    close(fd_);
  } else {
    shutdown(fd_, SHUT_RDWR);  // the writer closes it
  }
  if (receiver) receiver->OnClosed(told);
  open_->Remove(this);
}

bool TcpConnection::PostUnlessEnded(Task task) {
  std::lock_guard lock(mutex_);
  if (ended_) return false;
  loop_.Post(std::move(task));
  return true;
}

void TcpConnection::Queue(OutFrame frame, Lane lane) {
  if (!closing_) out_.Push(std::move(frame), lane);
}

void TcpConnection::Flush() {
  if (Turn::Defers(this)) return;
  if (out_.TakeRole()) WriteWithRole();
}

void TcpConnection::WriteWithRole() {
  for (size_t writes = 1;; ++writes) {
    switch (out_.Write(fd_)) {
      case OutQueue::Progress::kGoOn: break;
      case OutQueue::Progress::kFull: return;
      case OutQueue::Progress::kEmpty:
        if (closing_) PostUnlessEnded([self = shared_from_this()] { self->OnAllWrittenFromLoop(); });
        return;
      case OutQueue::Progress::kStopped: close(fd_); return;
      case OutQueue::Progress::kBroken:
        // What the other side sent before it broke off is still read.
        PostUnlessEnded([self = shared_from_this(), error = out_.write_errno()] {
          if (self->reading_for_) self->ReadFromLoop(true);
          self->EndBrokenFromLoop(error);
        });
        return;
    }
    // Long enough for a thread that has its own work: the role goes along with the task. Once ended, kStopped is near.
    if (writes % kWritesPerTurn == 0 && PostUnlessEnded([self = shared_from_this()] { self->WriteWithRole(); })) return;
  }
}

void TcpConnection::Close(Failure reason) {
  {
    std::lock_guard lock(mutex_);
    if (closing_.exchange(true)) return;
    end_reason_ = std::move(reason);
    close_limit_ = loop_.CallAt(loop_.Now() + kCloseLimit, [self = shared_from_this()] { self->EndFromLoop({}); });
  }
  if (out_.TakeRole()) WriteWithRole();  // finds an empty queue, now or later
}

void TcpConnection::OnAllWrittenFromLoop() {
  if (over_) return;
  shutdown(fd_, SHUT_WR);
  if (!watched_) return EndFromLoop({});
  DiscardFromLoop();
}

}  // namespace gradwire::transport
