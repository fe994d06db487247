#include "transport/tcp/tcp_transport.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/event.h"
#include "base/fork_close.h"
#include "base/log.h"
#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_connection.h"

namespace gradwire::transport {
namespace {

constexpr std::chrono::seconds kStopLimit{10};
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};

Failure NotConnected(const std::string& address, const std::string& why, ErrorCode code = ErrorCode::kUnreachable) {
  return {.code = code, .text = address + ": " + why};
}

int OpenSocket(const TcpAddress& address) {
  return CloseInForkedChildren(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

struct TcpTransport::State : std::enable_shared_from_this<State> {
  State(Loop& loop, TcpOptions options) : loop(loop), options(std::move(options)) {}

  struct Attempt {
    int fd = -1;
    TcpAddress address;
    ConnectCallback callback;
    TimerId limit = 0;
  };

  void AcceptFromLoop();
  void PauseAcceptingFromLoop();
  void WatchListener();
  void ConnectFromLoop(const std::string& address, TimePoint limit, ConnectCallback callback);
  void OnConnectedFromLoop(uint64_t id);
  void EndAttemptFromLoop(uint64_t id, const std::string& why, ErrorCode code = ErrorCode::kUnreachable);
  void RefusedFromLoop(uint64_t id, int error);
  void StopFromLoop();

  Loop& loop;
  const TcpOptions options;
  const std::shared_ptr<OpenConnections> open = std::make_shared<OpenConnections>();
  AcceptCallback accept;  // constant once listening

  // The loop's own.
  int listener = -1;
  std::unordered_map<uint64_t, Attempt> attempts;
  uint64_t last_attempt = 0;
  bool stopped = false;
};

void TcpTransport::State::WatchListener() {
  loop.Watch(listener, EPOLLIN, [weak = weak_from_this()](uint32_t) {
    if (auto self = weak.lock()) self->AcceptFromLoop();
  });
}

void TcpTransport::State::AcceptFromLoop() {
  while (!stopped) {
    const int fd = CloseInForkedChildren(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0) {
      accept(TcpConnection::Make(loop, fd, open));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return PauseAcceptingFromLoop();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// The waiting connection keeps the listener readable: without a pause the loop would spin.
void TcpTransport::State::PauseAcceptingFromLoop() {
  Log(LogLevel::kError, "tcp: cannot accept a connection: " + std::string(std::strerror(errno)));
  loop.Unwatch(listener);
  loop.CallAt(loop.Now() + kPauseWithoutDescriptors, [weak = weak_from_this()] {
    if (auto self = weak.lock(); self && !self->stopped) self->WatchListener();
  });
}

void TcpTransport::State::ConnectFromLoop(const std::string& text, TimePoint limit, ConnectCallback callback) {
  if (stopped) return callback(nullptr, NotConnected(text, "this side has stopped"));
  TcpAddress address;
  try {
    address = TcpAddress::Parse(text);
  } catch (const Error& error) {
    return callback(nullptr, error.failure());
  }
  const int fd = OpenSocket(address);
  if (fd < 0) return callback(nullptr, NotConnected(text, std::strerror(errno)));
  const uint64_t id = ++last_attempt;
  attempts.emplace(id, Attempt{.fd = fd, .address = address, .callback = std::move(callback)});
  if (connect(fd, address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return RefusedFromLoop(id, errno);
  }
  attempts[id].limit = loop.CallAt(limit, [weak = weak_from_this(), id] {
    if (auto self = weak.lock()) self->EndAttemptFromLoop(id, "no answer within the time allowed");
  });
  loop.Watch(fd, EPOLLOUT, [weak = weak_from_this(), id](uint32_t) {
    if (auto self = weak.lock()) self->OnConnectedFromLoop(id);
  });
}

void TcpTransport::State::OnConnectedFromLoop(uint64_t id) {
  auto it = attempts.find(id);
  if (it == attempts.end()) return;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(it->second.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  // A port of this host where nobody listens may be given to the very socket that asks for it.
  if (!error && TcpAddress::Local(it->second.fd) == it->second.address) error = ECONNREFUSED;
  if (error) return RefusedFromLoop(id, error);
  Attempt attempt = std::move(it->second);
  attempts.erase(it);
  loop.Cancel(attempt.limit);
  loop.Unwatch(attempt.fd);
  attempt.callback(TcpConnection::Make(loop, attempt.fd, open), {});
}

// A refusal is the one thing that says for certain that nobody is there.
void TcpTransport::State::RefusedFromLoop(uint64_t id, int error) {
  EndAttemptFromLoop(id, std::strerror(error),
                     error == ECONNREFUSED ? ErrorCode::kDisconnected : ErrorCode::kUnreachable);
}

void TcpTransport::State::EndAttemptFromLoop(uint64_t id, const std::string& why, ErrorCode code) {
  auto it = attempts.find(id);
  if (it == attempts.end()) return;
  Attempt attempt = std::move(it->second);
  attempts.erase(it);
  loop.Cancel(attempt.limit);
  loop.Unwatch(attempt.fd);
  close(attempt.fd);
  attempt.callback(nullptr, NotConnected(attempt.address.ToString(), why, code));
}

void TcpTransport::State::StopFromLoop() {
  stopped = true;
  if (listener >= 0) {
    loop.Unwatch(listener);
    close(std::exchange(listener, -1));
  }
  while (!attempts.empty()) EndAttemptFromLoop(attempts.begin()->first, "this side has stopped");
}

TcpTransport::TcpTransport(Loop& loop, TcpOptions options)
    : state_(std::make_shared<State>(loop, std::move(options))) {}
TcpTransport::~TcpTransport() { Stop(); }

std::string TcpTransport::Listen(AcceptCallback accept) {
  const TcpAddress wanted = TcpAddress::OfHost(state_->options.bind_host, state_->options.port);
  const int fd = OpenSocket(wanted);
  const int one = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd < 0 || bind(fd, wanted.get(), wanted.size) != 0 || listen(fd, SOMAXCONN) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw Error(ErrorCode::kInvalid, "cannot listen at " + wanted.ToString() + ": " + why);
  }
  const std::string address = TcpAddress::Local(fd).ToString();
  state_->loop.Post([state = state_, fd, accept = std::move(accept)]() mutable {
    if (state->stopped) {
      close(fd);
      return;
    }
    state->listener = fd;
    state->accept = std::move(accept);
    state->WatchListener();
  });
  return address;
}

void TcpTransport::Connect(const std::string& address, TimePoint limit, ConnectCallback callback) {
  state_->loop.Post([state = state_, address, limit, callback = std::move(callback)]() mutable {
    state->ConnectFromLoop(address, limit, std::move(callback));
  });
}

void TcpTransport::Stop() {
  // Run on the loop's thread; at once when the loop has ended, which drops tasks.
  const auto run = [this](Task task) {
    Event done;
    struct SetAtEnd {
      explicit SetAtEnd(Event* event) : event(event) {}
      SetAtEnd(SetAtEnd&& other) noexcept : event(std::exchange(other.event, nullptr)) {}
      ~SetAtEnd() {
        if (event) event->Set();
      }
      Event* event;
    };
    state_->loop.Post([end = SetAtEnd(&done), task = std::move(task)]() mutable { task(); });
    done.Wait();
  };
  run([state = state_] { state->StopFromLoop(); });
  const Failure reason{.code = ErrorCode::kDisconnected, .text = "this side has stopped"};
  for (const auto& connection : state_->open->All()) connection->Close(reason);
  state_->open->WaitUntilEmpty(kStopLimit);
  run([] {});  // the last callback has returned
}

}  // namespace gradwire::transport
