#include "transport/tcp/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
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

// While one stands on a thread, Wake() on that thread is put off until it ends: what a batch of frames is answered with
// leaves in few system calls.
class TcpConnection::Turn {
 public:
  Turn() : outer_(std::exchange(current_, this)) {}
  ~Turn() {
    current_ = outer_;
    for (const auto& connection : to_wake_) connection->Wake();
  }
  static bool Defers(TcpConnection* connection) {
    if (!current_) return false;
    auto& waiting = current_->to_wake_;
    if (waiting.empty() || waiting.back().get() != connection) waiting.push_back(connection->shared_from_this());
    return true;
  }

 private:
  static thread_local Turn* current_;
  Turn* const outer_;
  std::vector<std::shared_ptr<TcpConnection>> to_wake_;
};
thread_local TcpConnection::Turn* TcpConnection::Turn::current_ = nullptr;

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

template <class F>
void TcpConnection::WithRole(F task) {
  {
    std::lock_guard lock(mutex_);
    if (borrowed_) {
      deferred_.push_back([self = shared_from_this(), task = std::move(task)] { self->WithRole(task); });
      wanted_back_ = true;
      return;
    }
    reading_ = true;
  }
  task();
  std::lock_guard lock(mutex_);
  reading_ = false;
}

template <class F>
void TcpConnection::PostWithRole(F task) {
  loop_.Post([self = shared_from_this(), task = std::move(task)] { self->WithRole(task); });
}

void TcpConnection::Start(std::shared_ptr<Receiver> receiver, std::shared_ptr<FrameSource> source) {
  Failure reason;
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      receiver_ = std::move(receiver);
      writer_.Open(std::move(source));
      return PostWithRole([this] { Begin(); });
    }
    reason = end_reason_;
  }
  receiver->OnClosed(reason);  // nobody else has the read role any more
}

// On their edges: no epoll_ctl while frames flow.
uint32_t TcpConnection::InterestLocked() const {
  uint32_t events = EPOLLET;
  if (!borrowed_) events |= EPOLLIN | EPOLLRDHUP;
  if (awaits_room_) events |= EPOLLOUT;
  return events;
}

void TcpConnection::Begin() {
  if (over_) return;
  watched_ = true;
  {
    std::lock_guard lock(mutex_);
    reading_for_ = receiver_;
    loop_.Watch(fd_, InterestLocked(), [self = shared_from_this()](uint32_t events) {
      // An older one: what is unread then is told at the give-back.
      if (events == EPOLLIN && self->IsBorrowed()) return;
      self->WithRole([self = self.get(), events] { self->OnReady(events); });
    });
  }
  if (writer_.OnWritable()) WriteWithRole();
}

void TcpConnection::OnReady(uint32_t events) {
  if (over_) return;
  if (events & EPOLLOUT) {
    {
      std::lock_guard lock(mutex_);
      awaits_room_ = false;
    }
    if (writer_.OnWritable()) WriteWithRole();
  }
  if (events & ~uint32_t{EPOLLOUT}) Read((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

FrameReader::Result TcpConnection::ReadOnce(bool to_the_end) {
  Turn turn;
  auto result = FrameReader::Result::kEnd;
  try {
    result = reader_.Read(fd_, to_the_end, *reading_for_);
  } catch (const Error& error) {
    // No other code of a receiver's may pass for an end of the line.
    const bool invalid = error.code() == ErrorCode::kInvalid;
    bad_ = error.failure();
    bad_->code = invalid ? ErrorCode::kInvalid : ErrorCode::kInternal;
    bad_->text = description_ + ": " + bad_->text;
    Log(LogLevel::kWarning, bad_->text + "; connection closed");
  } catch (const std::exception& error) {
    bad_ = Failure{.code = ErrorCode::kInternal, .text = description_ + ": " + error.what()};
    Log(LogLevel::kError, bad_->text + "; connection closed");
  }
  read_all_ = result == FrameReader::Result::kEnd;
  return result;
}

void TcpConnection::Read(bool to_the_end) {
  if (over_) return;
  if (closing_) return Discard();
  if (!read_all_) {
    switch (ReadOnce(to_the_end)) {
      case FrameReader::Result::kDrained: return;
      case FrameReader::Result::kMore: return PostWithRole([this, to_the_end] { Read(to_the_end); });
      case FrameReader::Result::kEnd: break;
    }
  }
  EndAsRead();
}

bool TcpConnection::IsBorrowed() {
  std::lock_guard lock(mutex_);
  return borrowed_;
}

bool TcpConnection::Borrow() {
  {
    std::lock_guard lock(mutex_);
    if (reading_ || borrowed_ || ended_ || closing_ || !receiver_) return false;
    borrowed_ = true;
    loop_.Change(fd_, InterestLocked());
  }
  if (watched_ && !read_all_) return true;
  GiveBack(false);
  return false;
}

void TcpConnection::GiveBack(bool to_end) {
  std::lock_guard lock(mutex_);
  borrowed_ = false;
  wanted_back_ = false;
  loop_.Change(fd_, InterestLocked());  // tells the loop what has come meanwhile
  for (Task& task : deferred_) loop_.Post(std::move(task));
  deferred_.clear();
  if (to_end) PostWithRole([this] { EndAsRead(); });
}

void TcpConnection::ReadUntil(const Event& event, Duration limit) {
  if (!Borrow()) return;
  const TimePoint end = std::chrono::steady_clock::now() + limit;
  bool to_end = false;
  while (!event.is_set() && !closing_ && !wanted_back_) {
    to_end = ReadOnce(false) == FrameReader::Result::kEnd;
    if (to_end || event.is_set() || std::chrono::steady_clock::now() >= end) break;
    sched_yield();  // whoever makes the answer may need this processor
  }
  GiveBack(to_end);
}

// After Close(): unread bytes would make the kernel reset the connection, and with it what the other side has not read.
void TcpConnection::Discard() {
  switch (reader_.Discard(fd_)) {
    case FrameReader::Result::kDrained: return;
    case FrameReader::Result::kMore: return PostWithRole([this] { Read(true); });
    case FrameReader::Result::kEnd: return EndBroken(0);
  }
}

void TcpConnection::EndAsRead() { return bad_ ? End(*bad_) : EndBroken(reader_.end_errno()); }

void TcpConnection::EndBroken(int error) {
  std::string text = description_ + ": ";
  if (error) {
    text += std::strerror(error);
  } else {
    text += reader_.between_frames() ? "the other side closed the connection"
                                     : "the other side closed the connection in the middle of a frame";
  }
  End({.code = ErrorCode::kDisconnected, .text = std::move(text)});
}

void TcpConnection::End(const Failure& reason) {
  if (over_) return;
  over_ = true;
  std::shared_ptr<Receiver> receiver;
  Failure told;
  {
    std::lock_guard lock(mutex_);
    if (!closing_.exchange(true)) end_reason_ = reason;  // after Close() or Abort() its reason counts
    told = end_reason_;
    ended_ = true;
    receiver = std::move(receiver_);
    if (close_limit_) loop_.Cancel(close_limit_);
  }
  if (watched_) loop_.Unwatch(fd_);
  reading_for_.reset();
  shutdown(fd_, SHUT_RDWR);       // while it is surely open: ends the write of whoever writes,
  if (writer_.End()) close(fd_);  // who else closes it
  if (receiver) receiver->OnClosed(told);
  open_->Remove(this);
}

bool TcpConnection::PostUnlessEnded(Task task) {
  std::lock_guard lock(mutex_);
  if (ended_) return false;
  loop_.Post(std::move(task));
  return true;
}

void TcpConnection::Wake() {
  if (Turn::Defers(this)) return;
  if (writer_.Wake()) WriteWithRole();
}

void TcpConnection::WriteWithRole() {
  for (size_t writes = 1;; ++writes) {
    switch (writer_.Write(fd_)) {
      case FrameWriter::Progress::kGoOn: break;
      case FrameWriter::Progress::kIdle: return;
      case FrameWriter::Progress::kFull: return AwaitRoom();
      case FrameWriter::Progress::kFinished:
        PostUnlessEnded([this, self = shared_from_this()] { WithRole([this] { OnAllWritten(); }); });
        return;
      case FrameWriter::Progress::kEnded: close(fd_); return;
      case FrameWriter::Progress::kBroken:
        // What the other side sent before it broke off is still read.
        PostUnlessEnded([this, self = shared_from_this(), error = writer_.write_errno()] {
          WithRole([this, error] {
            if (reading_for_) Read(true);
            EndBroken(error);
          });
        });
        return;
    }
    // Long enough for a thread that has its own work: the role goes along with the task. Once ended, kEnded is near.
    if (writes % kWritesPerTurn == 0 && PostUnlessEnded([self = shared_from_this()] { self->WriteWithRole(); })) return;
  }
}

void TcpConnection::Close(Failure reason) {
  bool started = false;
  {
    std::lock_guard lock(mutex_);
    if (closing_.exchange(true)) return;
    end_reason_ = std::move(reason);
    started = receiver_ != nullptr;
    if (started) {
      close_limit_ =
          loop_.CallAt(loop_.Now() + kCloseLimit, [this, self = shared_from_this()] { WithRole([this] { End({}); }); });
    }
  }
  if (!started) {
    PostEnd();
  } else if (writer_.Finish()) {
    WriteWithRole();
  }
}

void TcpConnection::Abort(Failure reason) {
  {
    std::lock_guard lock(mutex_);
    if (!closing_.exchange(true)) end_reason_ = std::move(reason);
  }
  writer_.Abort();
  PostEnd();
}

void TcpConnection::PostEnd() {
  PostUnlessEnded([this, self = shared_from_this()] { WithRole([this] { End({}); }); });
}

// The socket may have room by now: asking for its events tells.
void TcpConnection::AwaitRoom() {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  awaits_room_ = true;
  loop_.Change(fd_, InterestLocked());
}

void TcpConnection::OnAllWritten() {
  if (over_) return;
  shutdown(fd_, SHUT_WR);
  if (!watched_) return End({});
  Discard();
}

}  // namespace gradwire::transport
