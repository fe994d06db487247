#include "transport/tcp/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "gradwire/error.h"

namespace gradwire::transport {
namespace {

// One or more.
std::vector<TcpAddress> LookupAll(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed) throw Error(ErrorCode::kInvalid, "host '" + host + "': " + gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<TcpAddress> addresses;
  for (; found; found = found->ai_next) {
    std::memcpy(&addresses.emplace_back().storage, found->ai_addr, found->ai_addrlen);
    addresses.back().size = found->ai_addrlen;
  }
  return addresses;
}

TcpAddress Lookup(const std::string& host, uint16_t port, int flags) { return LookupAll(host, port, flags).front(); }

bool IsAnyInterface(const TcpAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr == htonl(INADDR_ANY);
}

std::string NumericHost(const TcpAddress& address) {
  char host[NI_MAXHOST] = "?";
  getnameinfo(address.get(), address.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

TcpAddress TcpAddress::Parse(const std::string& text) {
  const auto bad = [&text](const std::string& why) -> Error {
    return {ErrorCode::kInvalid, "'" + text + "' is no address of TCP: " + why};
  };
  const size_t colon = text.rfind(':');
  if (text.rfind("tcp://", 0) != 0 || colon < 6) throw bad("expected tcp://host:port");
  std::string host = text.substr(6, colon - 6);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port == 0) throw bad("the port is not in 1 .. 65535");
  if (host.empty()) throw bad("the host is empty");
  try {
    return Lookup(host, port, AI_NUMERICHOST);
  } catch (const Error&) {
    throw bad("the host is not numeric");
  }
}

TcpAddress TcpAddress::OfHost(const std::string& host, uint16_t port) {
  TcpAddress address = Lookup(host, port, 0);
  if (IsAnyInterface(address)) throw Error(ErrorCode::kInvalid, "host '" + host + "' names no interface");
  return address;
}

TcpAddress TcpAddress::Local(int fd) {
  TcpAddress address;
  address.size = sizeof address.storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

TcpAddress TcpAddress::Remote(int fd) {
  TcpAddress address;
  address.size = sizeof address.storage;
  getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

std::string TcpAddress::HostAndPort() const {
  const std::string host = NumericHost(*this);
  if (storage.ss_family == AF_INET6) {
    return "[" + host + "]:" + std::to_string(ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port));
  }
  return host + ":" + std::to_string(ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port));
}

std::string InterfaceToward(const std::string& host) {
  constexpr uint16_t kDiscardPort = 9;  // any: connecting a datagram socket only looks for the route
  std::string why;
  for (const TcpAddress& there : LookupAll(host, kDiscardPort, 0)) {
    const int fd = socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool found = fd >= 0 && connect(fd, there.get(), there.size) == 0;
    if (!found) why = std::strerror(errno);
    const std::string interface = found ? NumericHost(TcpAddress::Local(fd)) : "";
    if (fd >= 0) close(fd);
    if (found) return interface;
  }
  throw Error(ErrorCode::kUnreachable, "no interface leads to '" + host + "': " + why);
}

}  // namespace gradwire::transport
