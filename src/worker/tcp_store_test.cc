// How a TCP store is opened: what is waited for, for how long, and what is said when it does not come.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>

#include "gradwire/c10d_store.h"
#include "gradwire/error.h"
#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A port of this machine: bound, and with `listens` one that takes connections and never says anything.
class Port {
 public:
  explicit Port(bool listens) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd_, any, size) != 0 || (listens && ::listen(fd_, 8) != 0) || ::getsockname(fd_, any, &size) != 0) {
      throw std::runtime_error("no port");
    }
    number_ = ntohs(address.sin_port);
  }
  ~Port() { Free(); }
  Port(const Port&) = delete;
  void Free() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  uint16_t number() const { return number_; }

 private:
  int fd_;
  uint16_t number_ = 0;
};

struct Refusal {
  Failure failure;
  milliseconds after;
};

std::optional<Refusal> Open(const std::string& host, uint16_t port, int rank, milliseconds limit) {
  const auto begin = steady_clock::now();
  try {
    OpenTcpStore(host, port, rank, limit);
  } catch (const Error& error) {
    return Refusal{error.failure(), std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin)};
  }
  return std::nullopt;
}

void ExpectAtTheLimit(const std::optional<Refusal>& refusal, const std::string& text) {
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->failure.code, ErrorCode::kUnreachable);
  EXPECT_NE(refusal->failure.text.find(text), std::string::npos) << refusal->failure.text;
  EXPECT_NE(refusal->failure.text.find("within 300 ms"), std::string::npos) << refusal->failure.text;
  EXPECT_GE(refusal->after, milliseconds(300));
  EXPECT_LT(refusal->after, milliseconds(1500));
}

TEST(TcpStore, C1_NobodyWhoServesEndsTheWaitAtItsLimit) {
  Port port(false);
  port.Free();
  ExpectAtTheLimit(Open("127.0.0.1", port.number(), 1, milliseconds(300)),
                   "no store to meet at 127.0.0.1:" + std::to_string(port.number()));
}

TEST(TcpStore, C1_OneThatSaysNothingEndsTheWaitAtItsLimit) {
  const Port port(true);
  ExpectAtTheLimit(Open("127.0.0.1", port.number(), 1, milliseconds(300)), "does not answer as a store");
}

TEST(TcpStore, C1_AHostThatIsNoneEndsTheWaitAtItsLimit) {
  ExpectAtTheLimit(Open("no.such.host.invalid", 29500, 1, milliseconds(300)), "no.such.host.invalid:29500");
}

TEST(TcpStore, APortThatIsTakenIsNamedAtOnce) {
  const Port port(true);
  const auto refusal = Open("127.0.0.1", port.number(), 0, milliseconds(20'000));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->failure.code, ErrorCode::kUnreachable);
  EXPECT_NE(refusal->failure.text.find("port " + std::to_string(port.number()) + " of this machine is taken"),
            std::string::npos)
      << refusal->failure.text;
  EXPECT_LT(refusal->after, milliseconds(5'000));
}

TEST(TcpStore, RankZeroWaitsForNobodyAndWhoComesFirstWaitsForIt) {
  Port port(false);
  port.Free();
  c10::intrusive_ptr<c10d::Store> first;
  std::thread other([&] { first = OpenTcpStore("127.0.0.1", port.number(), 1, milliseconds(20'000)); });
  const auto store = WrapStore(OpenTcpStore("127.0.0.1", port.number(), 0, milliseconds(20'000)));
  store->Set("key", "value");
  other.join();
  EXPECT_EQ(WrapStore(first)->Get("key", milliseconds(20'000)), "value");
}

TEST(TcpStore, RankZeroServesWhereTheAgentOfTorchrunDoesNot) {
  Port port(false);
  port.Free();
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  ::setenv("MASTER_PORT", std::to_string(port.number()).c_str(), 1);
  EXPECT_TRUE(Open("127.0.0.1", port.number(), 0, milliseconds(100))) << "the agent's place";
  ::setenv("MASTER_PORT", "1", 1);
  EXPECT_FALSE(Open("127.0.0.1", port.number(), 0, milliseconds(20'000))) << "a place of the program's own";
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  ::unsetenv("MASTER_PORT");
}

TEST(TcpStore, AKeyThatDoesNotComeIsNothingAtTheLimit) {
  Port port(false);
  port.Free();
  const auto store = WrapStore(OpenTcpStore("127.0.0.1", port.number(), 0, milliseconds(20'000)));
  testing::internal::CaptureStderr();
  const auto begin = steady_clock::now();
  EXPECT_EQ(store->Get("key", milliseconds(200)), std::nullopt);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(200));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(TcpStore, AWaitLooksAtItsHook) {
  Port port(false);
  port.Free();
  const auto store = WrapStore(OpenTcpStore("127.0.0.1", port.number(), 0, milliseconds(20'000)));
  const WaitHook hook([] { throw std::runtime_error("interrupted"); });
  EXPECT_THROW(store->Get("key", milliseconds(20'000)), std::runtime_error);
  EXPECT_THROW(OpenTcpStore("no.such.host.invalid", 29500, 1, milliseconds(20'000)), std::runtime_error);
}

}  // namespace
}  // namespace gradwire
