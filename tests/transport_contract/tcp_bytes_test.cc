// What a stranger's bytes do to a TCP transport: they end the stranger's connection, and nothing else.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/loop.h"
#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_transport.h"
#include "transport_contract/contract.h"

namespace gradwire::transport {
namespace {

// A bare socket, to send anything at all.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const TcpAddress to = TcpAddress::Parse(address);
    fd_ = socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd_, to.get(), to.size), 0);
  }
  ~Stranger() { Leave(); }
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return;  // already closed by the other side
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void Leave() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  // As when the kernel ends a killed process that has unread bytes.
  void Die() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    Leave();
  }
  // Waits for the other side to close.
  bool IsClosed() {
    char ignored[256];
    for (;;) {
      const ssize_t got = recv(fd_, ignored, sizeof ignored, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }

 private:
  int fd_ = -1;
};

class TcpBytes : public testing::Test {
 protected:
  TcpBytes() {
    before_ = SetLogSink([this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      log_.emplace_back(text);
    });
    address_ = server_.Listen([this](std::shared_ptr<Connection> connection) {
      auto recorder = std::make_shared<Recorder>(
          [this](const wire::FrameHeader&, const std::string&) { last_reader_ = std::this_thread::get_id(); });
      auto source = std::make_shared<QueueSource>();
      connection->Start(recorder, source);
      std::lock_guard lock(mutex_);
      recorders_.push_back(recorder);
      sources_.push_back(std::move(source));
      connections_.push_back(std::move(connection));
      changed_.notify_all();
    });
  }
  ~TcpBytes() override {
    server_.Stop();
    SetLogSink(std::move(before_));
  }

  std::shared_ptr<Recorder> AcceptedAs(size_t index) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return recorders_.size() > index; })) return nullptr;
    return recorders_[index];
  }
  std::vector<std::string> log() {
    FlushLog(kPatience);
    std::lock_guard lock(mutex_);
    return log_;
  }
  std::shared_ptr<Connection> ConnectionOf(size_t index) {
    std::lock_guard lock(mutex_);
    return connections_[index];
  }
  std::string Frame(size_t body) {
    std::string bytes;
    wire::EncodeHeader({.body_size = static_cast<uint32_t>(body), .number = 1}, bytes);
    return bytes + std::string(body, 'x');
  }

  LogSink before_;
  Loop loop_;
  TcpTransport server_{loop_};
  std::string address_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Recorder>> recorders_;
  std::vector<std::shared_ptr<QueueSource>> sources_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::string> log_;
  std::atomic<std::thread::id> last_reader_{};
};

TEST_F(TcpBytes, AFrameMayArriveByteByByte) {
  Stranger stranger(address_);
  const auto recorder = AcceptedAs(0);
  for (const char byte : Frame(40) + Frame(0)) stranger.Send({&byte, 1});
  ASSERT_TRUE(recorder->WaitForFrames(2));
  EXPECT_EQ(recorder->TakeFrames()[0].body, std::string(40, 'x'));
}

// The loop has learnt that there is something to read, and is busy elsewhere while a waiting thread borrows the read
// role and reads it. What the loop does about it afterwards must not ask for the role.
TEST_F(TcpBytes, O1AnEventOlderThanTheLoanDoesNotEndIt) {
  Stranger stranger(address_);
  const auto recorder = AcceptedAs(0);
  stranger.Send(Frame(1));
  ASSERT_TRUE(recorder->WaitForFrames(1));

  // Both are ready before the loop looks again, this one first.
  Event looked_away, look_again, busy, go_on;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  loop_.Watch(pipe_ends[0], EPOLLIN | EPOLLET, [&](uint32_t) {
    busy.Set();
    go_on.Wait(kPatience);
  });
  loop_.Post([&] {
    looked_away.Set();
    look_again.Wait(kPatience);
  });
  ASSERT_TRUE(looked_away.Wait(kPatience));
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  stranger.Send(Frame(2));
  look_again.Set();
  ASSERT_TRUE(busy.Wait(kPatience));

  Event enough;
  std::thread reader([&] { ConnectionOf(0)->ReadUntil(enough, kPatience); });
  EXPECT_TRUE(recorder->WaitForFrames(2));
  EXPECT_EQ(last_reader_.load(), reader.get_id());
  go_on.Set();
  Event handled;
  loop_.Post([&] { handled.Set(); });
  EXPECT_TRUE(handled.Wait(kPatience));
  for (size_t frames = 3; frames < 10; ++frames) {
    stranger.Send(Frame(3));
    EXPECT_TRUE(recorder->WaitForFrames(frames));
    EXPECT_EQ(last_reader_.load(), reader.get_id());
  }
  enough.Set();
  reader.join();
  loop_.Unwatch(pipe_ends[0]);
  for (const int end : pipe_ends) close(end);
}

TEST_F(TcpBytes, ABadHeaderClosesItsConnectionAloneWithOneLogLine) {
  Stranger good(address_);
  const auto good_recorder = AcceptedAs(0);
  Stranger bad(address_);
  const auto bad_recorder = AcceptedAs(1);
  std::string frame = Frame(3);
  frame[0] = 99;
  bad.Send(Frame(5) + frame + Frame(5));
  ASSERT_TRUE(bad_recorder->WaitForClosed());
  EXPECT_EQ(bad_recorder->reason().code, ErrorCode::kInvalid);
  EXPECT_EQ(bad_recorder->TakeFrames().size(), 1u);
  EXPECT_TRUE(bad.IsClosed());
  ASSERT_EQ(log().size(), 1u);
  EXPECT_NE(log()[0].find("kind 99"), std::string::npos) << log()[0];
  good.Send(Frame(5));
  EXPECT_TRUE(good_recorder->WaitForFrames(1));
}

TEST_F(TcpBytes, AnOversizedBodyIsRefusedBeforeItArrives) {
  Stranger stranger(address_);
  const auto recorder = AcceptedAs(0);
  std::string header;
  wire::EncodeHeader({.body_size = 4'000'000'000u}, header);
  stranger.Send(header);
  ASSERT_TRUE(recorder->WaitForClosed());
  EXPECT_TRUE(stranger.IsClosed());
}

TEST_F(TcpBytes, ATruncatedFrameIsNoFrame) {
  const std::string frame = Frame(40);
  for (size_t size = 0; size < frame.size(); ++size) {
    Stranger stranger(address_);
    const auto recorder = AcceptedAs(size);
    stranger.Send(frame.substr(0, size));
    stranger.Leave();
    ASSERT_TRUE(recorder->WaitForClosed());
    EXPECT_EQ(recorder->reason().code, ErrorCode::kDisconnected);
    EXPECT_EQ(recorder->reason().text.find("in the middle") != std::string::npos, size > 0) << size;
    EXPECT_TRUE(recorder->TakeFrames().empty());
  }
  EXPECT_TRUE(log().empty());  // an end is no misbehaviour
}

TEST_F(TcpBytes, RandomBytesCloseTheirConnectionAndNothingElse) {
  Stranger good(address_);
  const auto good_recorder = AcceptedAs(0);
  std::mt19937_64 random(11);
  for (size_t round = 1; round <= 100; ++round) {
    Stranger bad(address_);
    std::string bytes(64 + random() % 2000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[1] = 77;  // no version of ours, whatever the rest says
    bad.Send(bytes);
    ASSERT_TRUE(AcceptedAs(round)->WaitForClosed());
    EXPECT_TRUE(bad.IsClosed());
    good.Send(Frame(round));
    ASSERT_TRUE(good_recorder->WaitForFrames(round));
  }
}

TEST_F(TcpBytes, APeerThatDiesIsSeen) {
  for (size_t round = 0; round < 20; ++round) {
    Stranger stranger(address_);
    const auto recorder = AcceptedAs(round);
    stranger.Send(Frame(10));
    ASSERT_TRUE(recorder->WaitForFrames(1));
    {
      std::lock_guard lock(mutex_);
      sources_[round]->Put(MakeBulk(1, MakeBytes(100'000, 1)));  // stays unread
    }
    ConnectionOf(round)->Wake();
    round % 2 ? stranger.Die() : stranger.Leave();
    ASSERT_TRUE(recorder->WaitForClosed());
    EXPECT_EQ(recorder->reason().code, ErrorCode::kDisconnected);
  }
}

TEST_F(TcpBytes, WhatADyingPeerSentBeforeIsDelivered) {
  for (size_t round = 0; round < 50; ++round) {
    Stranger stranger(address_);
    const auto recorder = AcceptedAs(round);
    stranger.Send(Frame(1000) + Frame(3000));
    stranger.Leave();
    ASSERT_TRUE(recorder->WaitForClosed());
    EXPECT_EQ(recorder->TakeFrames().size(), 2u);
  }
}

TEST(TcpAddress, OnlyNumericAddressesAreTaken) {
  EXPECT_EQ(TcpAddress::Parse("tcp://127.0.0.1:4711").ToString(), "tcp://127.0.0.1:4711");
  EXPECT_EQ(TcpAddress::Parse("tcp://[::1]:4711").ToString(), "tcp://[::1]:4711");
  for (const char* bad :
       {"", "tcp://", "127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65536", "tcp://127.0.0.1:1x", "tcp://some.host:1", "tcp://:1", "udp://1.1.1.1:1"}) {
    EXPECT_THROW(TcpAddress::Parse(bad), Error) << bad;
  }
  EXPECT_THROW(TcpAddress::OfHost("0.0.0.0", 1), Error);
  EXPECT_THROW(TcpAddress::OfHost("::", 1), Error);
  EXPECT_EQ(InterfaceToward("127.0.0.1"), "127.0.0.1");
}

TEST(TcpTransport, ListeningFailsClearly) {
  Loop loop;
  TcpTransport first(loop);
  const std::string address = first.Listen([](const auto&) {});
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  TcpTransport second(loop, {.port = port});
  try {
    second.Listen([](const auto&) {});
    FAIL() << "two transports listen at " << address;
  } catch (const Error& error) {
    EXPECT_NE(error.failure().text.find(address), std::string::npos) << error.failure().text;
  }
}

// Someone may be there after all.
TEST(TcpTransport, NoAnswerIsUnreachableAndNotARefusal) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const TcpAddress any = TcpAddress::OfHost("127.0.0.1", 0);
  ASSERT_EQ(bind(listener, any.get(), any.size), 0);
  ASSERT_EQ(listen(listener, 0), 0);  // and never accepts: the system leaves all but the first few unanswered
  const std::string address = TcpAddress::Local(listener).ToString();
  Loop loop;
  TcpTransport transport(loop);
  std::atomic<int> unreachable{0};
  Event ended[5];
  std::vector<std::shared_ptr<Connection>> connections;
  for (Event& each : ended) {
    transport.Connect(address, std::chrono::steady_clock::now() + std::chrono::milliseconds(100),
                      [&](std::shared_ptr<Connection> connection, const Failure& failure) {
                        if (!connection) {
                          EXPECT_EQ(failure.code, ErrorCode::kUnreachable) << failure.text;
                          ++unreachable;
                        }
                        connections.push_back(std::move(connection));
                        each.Set();
                      });
  }
  for (Event& each : ended) ASSERT_TRUE(each.Wait(kPatience));
  EXPECT_GT(unreachable, 0);
  connections.clear();
  close(listener);
}

TEST(TcpTransport, StopReturnsAlthoughItsLoopHasEnded) {
  Loop loop;
  TcpTransport transport(loop);
  transport.Listen([](const auto&) {});
  loop.Stop();
  transport.Stop();
}

}  // namespace
}  // namespace gradwire::transport
