#include "faults/cutting_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace gradwire::faults {
namespace {

constexpr size_t kMostWaiting = 256 * 1024;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

CuttingProxy::CuttingProxy(const std::string& target, uint64_t seed)
    : target_(target), random_(static_cast<uint32_t>(seed)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = Loopback(0);
  socklen_t size = sizeof own;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&own), size) != 0 || listen(listener_, SOMAXCONN) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0 || pipe2(wake_, O_CLOEXEC) != 0) {
    throw std::runtime_error("a proxy cannot listen");
  }
  SetNonBlocking(listener_);
  SetNonBlocking(wake_[0]);
  address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  thread_ = std::thread([this] { Run(); });
}

CuttingProxy::~CuttingProxy() {
  stop_ = true;
  static_cast<void>(!write(wake_[1], "", 1));
  thread_.join();
  for (const auto& pipe : pipes_) Break(*pipe);
  for (const int fd : {listener_, wake_[0], wake_[1]}) close(fd);
}

void CuttingProxy::Cut() {
  cut_ = true;
  static_cast<void>(!write(wake_[1], "", 1));
}

void CuttingProxy::Run() {
  while (!stop_) {
    std::vector<pollfd> polled{{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    for (const auto& pipe : pipes_) {
      for (const int side : {0, 1}) {
        short events = 0;
        if (!pipe->ended[side] && pipe->waiting[1 - side].size() < kMostWaiting) events |= POLLIN;
        if (!pipe->waiting[side].empty()) events |= POLLOUT;
        polled.push_back({events ? pipe->fds[side] : -1, events, 0});
      }
    }
    poll(polled.data(), polled.size(), -1);
    char ignored[64];
    while (read(wake_[0], ignored, sizeof ignored) > 0) {
    }
    if (cut_.exchange(false)) {
      for (const auto& pipe : pipes_) Break(*pipe);
      pipes_.clear();
    }
    std::erase_if(pipes_, [this](const auto& pipe) { return !Move(*pipe); });
    Accept();
  }
}

void CuttingProxy::Accept() {
  for (int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); near >= 0;
       near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) {
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto port = static_cast<uint16_t>(std::stoi(target_.substr(target_.rfind(':') + 1)));
    const sockaddr_in to = Loopback(port);
    if (connect(far, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      close(near);
      close(far);
      continue;
    }
    SetNonBlocking(near);
    SetNonBlocking(far);
    ++accepted_;
    std::lock_guard lock(recordings_mutex_);
    pipes_.push_back(std::unique_ptr<Pipe>(new Pipe{.fds = {near, far}, .recording = recordings_.size()}));
    recordings_.emplace_back();
  }
}

void CuttingProxy::Record(const Pipe& pipe, int side, std::string_view bytes) {
  std::lock_guard lock(recordings_mutex_);
  Recording& recording = recordings_[pipe.recording];
  std::string& carried = side == 0 ? recording.of_maker : recording.of_other;
  carried += bytes.substr(0, kMostRecorded - std::min(kMostRecorded, carried.size()));
}

std::vector<CuttingProxy::Recording> CuttingProxy::recordings() const {
  std::lock_guard lock(recordings_mutex_);
  return recordings_;
}

bool CuttingProxy::Move(Pipe& pipe) {
  for (const int side : {0, 1}) {
    std::string& to_other = pipe.waiting[1 - side];
    if (!pipe.ended[side] && to_other.size() < kMostWaiting) {
      char bytes[64 * 1024];
      const size_t most = std::uniform_int_distribution<size_t>(1, sizeof bytes)(random_);
      const ssize_t got = recv(pipe.fds[side], bytes, most, 0);
      if (got > 0) {
        to_other.append(bytes, static_cast<size_t>(got));
        bytes_ += static_cast<uint64_t>(got);
        Record(pipe, side, {bytes, static_cast<size_t>(got)});
        int64_t left = cut_after_;
        if (left >= 0) {
          left -= got;
          cut_after_ = std::max<int64_t>(left, -1);
          if (left < 0) {
            Break(pipe);
            return false;
          }
        }
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        pipe.ended[side] = true;
      }
    }
    std::string& waiting = pipe.waiting[side];
    if (!waiting.empty()) {
      const ssize_t put = send(pipe.fds[side], waiting.data(), waiting.size(), MSG_NOSIGNAL);
      if (put > 0) waiting.erase(0, static_cast<size_t>(put));
      if (put < 0 && errno != EAGAIN && errno != EINTR) {
        Break(pipe);
        return false;
      }
    }
    if (pipe.ended[1 - side] && waiting.empty()) shutdown(pipe.fds[side], SHUT_WR);
  }
  if (!(pipe.ended[0] && pipe.ended[1] && pipe.waiting[0].empty() && pipe.waiting[1].empty())) return true;
  for (const int fd : pipe.fds) close(fd);
  return false;
}

void CuttingProxy::Break(Pipe& pipe) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // a reset, as of a line that is gone
  for (const int fd : pipe.fds) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
  }
  ++cuts_;
}

}  // namespace gradwire::faults
