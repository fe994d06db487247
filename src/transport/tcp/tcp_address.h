// Addresses of TCP: "tcp://127.0.0.1:4711", "tcp://[::1]:4711". Always numeric, so that connecting asks no name server.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace gradwire::transport {

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }

  // Throws Error(kInvalid) for anything but "tcp://", a numeric host, a port other than 0.
  static TcpAddress Parse(const std::string& text);
  // Looks the host up, so it may block. Throws Error(kInvalid) for an unknown host, and for one that stands for all
  // interfaces: nobody could connect to that.
  static TcpAddress OfHost(const std::string& host, uint16_t port);
  // What a socket is bound or connected to.
  static TcpAddress Local(int fd);
  static TcpAddress Remote(int fd);

  bool operator==(const TcpAddress& other) const { return HostAndPort() == other.HostAndPort(); }
  std::string HostAndPort() const;  // "127.0.0.1:4711", "[::1]:4711"
  std::string ToString() const { return "tcp://" + HostAndPort(); }
};

// The numeric address of the interface that packets to `host` leave by; sends none. May look up a name. Throws
// Error(kUnreachable) when no route leads there.
std::string InterfaceToward(const std::string& host);

}  // namespace gradwire::transport
