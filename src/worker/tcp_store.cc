// OpenTcpStore(): a TCP store without libtorch's own wait for a server, which is loud, overruns its limit, and has none
// for a server that takes the connection and says nothing.
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/event.h"
#include "gradwire/c10d_store.h"
#include "gradwire/error.h"
#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPause{100};          // between looks at what the outside wants, and between attempts
constexpr milliseconds kConnectLimit{2000};  // of one attempt
constexpr milliseconds kNoLimit = std::chrono::hours(24 * 365);

bool EnvironmentIs(const char* name, const char* value) {
  const char* const found = std::getenv(name);
  return found && std::strcmp(found, value) == 0;
}

// Under torchrun its agent may serve, at MASTER_PORT and nowhere else; MASTER_ADDR may be written in many ways.
bool AgentServes(uint16_t port) {
  return EnvironmentIs("TORCHELASTIC_USE_AGENT_STORE", "True") &&
         EnvironmentIs("MASTER_PORT", std::to_string(port).c_str());
}

class Socket {
 public:
  Socket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// 0, or why not.
int Connect(const addrinfo& address) {
  const Socket socket(address.ai_family, SOCK_STREAM);
  if (socket.fd() < 0) return errno;
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd poll{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  if (::poll(&poll, 1, static_cast<int>(kConnectLimit.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Empty once somebody takes connections there; otherwise what came instead.
std::string WhyNobodyListens(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    return "the name of the host: " + std::string(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  int error = EHOSTUNREACH;
  for (const addrinfo* address = found; address; address = address->ai_next) {
    error = Connect(*address);
    if (error == 0) return "";
  }
  return std::generic_category().message(error);
}

bool PortIsTaken(uint16_t port) {
  const Socket socket(AF_INET, SOCK_STREAM);
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 && errno == EADDRINUSE;
}

// What the thread that makes the store and the one that waits for it share.
struct Attempt {
  Event over;

  std::mutex mutex;
  // guarded by mutex until `over` is set, constant afterwards
  c10::intrusive_ptr<c10d::Store> store;
  std::string failure;
  // guarded by mutex
  std::string state = "looking for its host";
  bool given_up = false;

  bool Note(std::string new_state) {
    std::lock_guard lock(mutex);
    state = std::move(new_state);
    return !given_up;
  }
};

void Make(const std::shared_ptr<Attempt>& attempt, const std::string& host, const c10d::TCPStoreOptions& options) {
  while (!options.isServer) {
    const std::string why = WhyNobodyListens(host, options.port);
    if (!attempt->Note(why.empty() ? "somebody listens there, but does not answer as a store does" : why)) return;
    if (why.empty()) break;
    std::this_thread::sleep_for(kPause);
  }
  try {
    attempt->store = c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const c10::Error& error) {
    attempt->failure = error.what_without_backtrace();
  } catch (const std::exception& error) {
    attempt->failure = error.what();
  }
  attempt->over.Set();
}

// False when `limit` has passed first.
bool Await(Event& event, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (!event.Wait(std::min<Duration>(kPause, end - steady_clock::now()))) {
    if (steady_clock::now() >= end) return false;
    if (const WaitHook::Hook hook = WaitHook::current()) hook();
  }
  return true;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> OpenTcpStore(const std::string& host, uint16_t port, int rank, milliseconds limit) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = rank == 0 && !AgentServes(port);
  options.waitWorkers = false;  // the rendezvous knows who is missing
  options.timeout = limit.count() > 0 ? limit : kNoLimit;
  options.multiTenant = true;
  options.useLibUV = !EnvironmentIs("USE_LIBUV", "0");
  const auto attempt = std::make_shared<Attempt>();
  // A thread that is left to itself when the time is over: nothing ends what libtorch does there.
  std::thread(Make, attempt, host, options).detach();
  const std::string where = host + ":" + std::to_string(port);
  bool over = false;
  try {
    over = Await(attempt->over, options.timeout);
  } catch (...) {
    std::lock_guard lock(attempt->mutex);
    attempt->given_up = true;
    throw;
  }
  if (!over) {
    std::lock_guard lock(attempt->mutex);
    attempt->given_up = true;
    throw Error(ErrorCode::kUnreachable,
                "no store to meet at " + where + " within " + std::to_string(limit.count()) + " ms: " + attempt->state);
  }
  if (attempt->store) return attempt->store;
  if (options.isServer && PortIsTaken(port)) {
    throw Error(ErrorCode::kUnreachable, "no store to meet at " + where + ": rank 0 is to serve it, but port " +
                                             std::to_string(port) + " of this machine is taken");
  }
  throw Error(ErrorCode::kUnreachable, "no store to meet at " + where + ": " + attempt->failure);
}

}  // namespace gradwire
