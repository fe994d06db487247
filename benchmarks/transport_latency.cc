// TCP between two processes: round trips of 200-byte frames, many frames at once, and 1 GiB by reference.
//
// usage: transport_latency [round trips]
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/event.h"
#include "base/loop.h"
#include "base/thread_pool.h"
#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_transport.h"

namespace gradwire::transport {
namespace {

constexpr size_t kBodyBytes = 200 - wire::FrameHeader::kSize;
constexpr uint64_t kOnPool = 1, kLast = 2;  // flags in a frame's `number`

OutFrame Frame(uint64_t number) {
  OutFrame frame;
  wire::EncodeHeader({.body_size = kBodyBytes, .number = number}, frame.bytes);
  frame.bytes.append(kBodyBytes, 'x');
  return frame;
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Answers each frame, by the thread that read it or by one of the pool. Bulk goes into one reused target.
class Echo : public Receiver {
 public:
  Echo(std::shared_ptr<Connection> connection, ThreadPool& pool) : connection_(std::move(connection)), pool_(pool) {}
  std::byte* BulkTarget(const wire::FrameHeader& header, std::string_view) override {
    if (target_.size() < header.bulk_size) target_.resize(header.bulk_size);
    return target_.data();
  }
  void OnFrame(const wire::FrameHeader& header, std::string) override {
    if (header.kind == wire::FrameKind::kBulk && !(header.number & kLast)) return;
    if (header.number & kOnPool) {
      pool_.Post([connection = connection_] { connection->Send(Frame(0), Lane::kHeaders); });
    } else {
      connection_->Send(Frame(0), Lane::kHeaders);
    }
  }
  void OnClosed(const Failure&) override {}

 private:
  const std::shared_ptr<Connection> connection_;
  ThreadPool& pool_;
  std::vector<std::byte> target_;
};

// Wakes the thread that waits for the answers.
class Caller : public Receiver {
 public:
  std::byte* BulkTarget(const wire::FrameHeader&, std::string_view) override { return nullptr; }
  void OnFrame(const wire::FrameHeader&, std::string) override {
    if (--missing_ == 0) answered_->Set();
  }
  void OnClosed(const Failure& reason) override {
    if (reason.code == ErrorCode::kCancelled) return;
    std::fprintf(stderr, "%s\n", reason.text.c_str());
    std::_Exit(1);
  }
  void Expect(int answers) {
    answered_ = std::make_unique<Event>();
    missing_ = answers;
  }
  void Wait() { answered_->Wait(); }

 private:
  std::atomic<int> missing_{0};
  std::unique_ptr<Event> answered_;
};

void RoundTrips(const char* what, int count, const std::function<void()>& once) {
  for (int i = 0; i < count / 10; ++i) once();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const double begin = Now();
    once();
    seconds.push_back(Now() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-58s p50 %7.2f us  p99 %7.2f us\n", what, seconds[seconds.size() / 2] * 1e6,
              seconds[seconds.size() * 99 / 100] * 1e6);
  std::fflush(stdout);
}

int Serve(int pipe_end) {
  Loop loop;
  ThreadPool pool({.max_running = 4});
  TcpTransport transport(loop);
  const std::string address = transport.Listen([&](const std::shared_ptr<Connection>& connection) {
    connection->SetBodyLimit(1 << 20);
    connection->Start(std::make_shared<Echo>(connection, pool));
  });
  if (write(pipe_end, address.data(), address.size()) < 0) return 1;
  close(pipe_end);
  pause();  // until it is killed
  return 0;
}

std::shared_ptr<Connection> Connect(Loop& loop, TcpTransport& transport, const std::string& address) {
  std::shared_ptr<Connection> connection;
  Event connected;
  transport.Connect(address, loop.Now() + std::chrono::seconds(5),
                    [&](std::shared_ptr<Connection> made, const Failure& failure) {
                      if (!made) std::fprintf(stderr, "%s\n", failure.text.c_str());
                      connection = std::move(made);
                      connected.Set();
                    });
  connected.Wait();
  if (!connection) std::_Exit(1);
  return connection;
}

void ManyAtOnce(Connection& connection, Caller& caller) {
  constexpr int kAtOnce = 1000, kRounds = 100;
  const double begin = Now();
  for (int round = 0; round < kRounds; ++round) {
    caller.Expect(kAtOnce);
    for (int i = 0; i < kAtOnce; ++i) connection.Send(Frame(0), Lane::kHeaders);
    caller.Wait();
  }
  std::printf("%-58s %7.0f k/s\n", "200-byte frames there and back, 1,000 at once, sent singly",
              kAtOnce * kRounds / (Now() - begin) / 1e3);
}

void OneGibibyte(Connection& connection, Caller& caller) {
  constexpr size_t kWhole = size_t{1} << 30, kPiece = size_t{1} << 20;
  const auto bytes = std::make_shared<std::vector<std::byte>>(kWhole, std::byte{1});
  for (int round = 0; round < 3; ++round) {
    caller.Expect(1);
    const double begin = Now();
    for (size_t at = 0; at < kWhole; at += kPiece) {
      OutFrame frame;
      const uint64_t number = at + kPiece == kWhole ? kLast : 0;
      wire::EncodeHeader({.kind = wire::FrameKind::kBulk, .bulk_size = kPiece, .number = number}, frame.bytes);
      frame.bulk = {.data = bytes->data() + at, .size = kPiece, .keep = bytes};
      connection.Send(std::move(frame), Lane::kBulk);
    }
    caller.Wait();
    std::printf("%-58s %7.2f GB/s\n", "1 GiB in pieces of 1 MiB", kWhole / (Now() - begin) / 1e9);
  }
}

// What a caller that reads the socket itself would see: the same server, a bare socket on this side.
void BareCaller(const std::string& address, int count) {
  const TcpAddress to = TcpAddress::Parse(address);
  const int fd = socket(to.storage.ss_family, SOCK_STREAM, 0);
  if (connect(fd, to.get(), to.size) != 0) std::_Exit(1);
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const std::string request = Frame(0).bytes;
  char answer[256];
  const auto once = [&](int flags) {
    if (send(fd, request.data(), request.size(), 0) < 0) std::_Exit(1);
    for (size_t got = 0; got < request.size();) {
      const ssize_t size = recv(fd, answer, sizeof answer, flags);
      if (size > 0) got += static_cast<size_t>(size);
    }
  };
  RoundTrips("the same, the caller reads the socket, blocking", count, [&] { once(0); });
  RoundTrips("the same, the caller reads the socket, polling", count, [&] { once(MSG_DONTWAIT); });
  close(fd);
}

int Main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 20'000;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when this side is ended by a signal
    std::_Exit(Serve(ends[1]));
  }
  close(ends[1]);
  char address[256] = {};
  if (read(ends[0], address, sizeof address - 1) <= 0) return 1;
  {
    Loop loop;
    TcpTransport transport(loop);
    const std::shared_ptr<Connection> connection = Connect(loop, transport, address);
    const auto caller = std::make_shared<Caller>();
    connection->Start(caller);
    const auto call = [&](uint64_t number) {
      caller->Expect(1);
      connection->Send(Frame(number), Lane::kHeaders);
      caller->Wait();
    };
    RoundTrips("200-byte round trip, answered by the reading thread", count, [&] { call(0); });
    RoundTrips("200-byte round trip, answered by a pool thread", count, [&] { call(kOnPool); });
    BareCaller(address, count);
    ManyAtOnce(*connection, *caller);
    OneGibibyte(*connection, *caller);
    connection->Close({.code = ErrorCode::kCancelled, .text = "done"});
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace gradwire::transport

int main(int argc, char** argv) { return gradwire::transport::Main(argc, argv); }
