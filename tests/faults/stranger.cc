#include "faults/stranger.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace gradwire::faults {
namespace {

// Far above what anything takes here: it ends a test that would hang.
constexpr timeval kLimit{.tv_sec = 60, .tv_usec = 0};

}  // namespace

Stranger::Stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) setsockopt(fd_, SOL_SOCKET, option, &kLimit, sizeof kLimit);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    throw std::runtime_error("a stranger cannot connect: " + std::string(std::strerror(errno)));
  }
}

Stranger::Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)), unread_(std::move(other.unread_)) {}

Stranger::~Stranger() {
  if (fd_ >= 0) close(fd_);
}

void Stranger::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("the other side reads no more");
    if (sent < 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void Stranger::SayNoMore() { shutdown(fd_, SHUT_WR); }

void Stranger::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(std::exchange(fd_, -1));
}

bool Stranger::Fill(size_t size) {
  while (unread_.size() < size) {
    char bytes[4096];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("the other side does not close");
    if (got <= 0) return false;
    unread_.append(bytes, static_cast<size_t>(got));
  }
  return true;
}

bool Stranger::Read(Frame& frame) {
  if (!Fill(wire::FrameHeader::kSize)) return false;
  frame.header = wire::DecodeHeader(unread_.data());
  const size_t end = wire::FrameHeader::kSize + frame.header.body_size;
  if (!Fill(end)) return false;
  frame.body = unread_.substr(wire::FrameHeader::kSize, frame.header.body_size);
  unread_.erase(0, end);
  return true;
}

std::vector<Stranger::Frame> Stranger::ReadAll() {
  std::vector<Frame> frames;
  Frame frame;
  while (Read(frame)) frames.push_back(frame);
  return frames;
}

}  // namespace gradwire::faults
