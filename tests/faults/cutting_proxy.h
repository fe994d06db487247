// CuttingProxy: a line between two TCP ends that a test can cut, at any byte, in each direction for itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace gradwire::faults {

// Listens on the loopback interface and carries bytes to and from `target`, "tcp://127.0.0.1:4711", in pieces of random
// sizes. Its thread ends with it. Any thread.
class CuttingProxy {
 public:
  CuttingProxy(const std::string& target, uint64_t seed);
  ~CuttingProxy();
  CuttingProxy(const CuttingProxy&) = delete;

  std::string address() const { return address_; }

  // Breaks all connections: what this proxy holds of either direction is lost. Later ones work.
  void Cut();
  // Breaks the next connection that moves bytes, once it has moved `bytes` more.
  void CutAfter(uint64_t bytes) { cut_after_ = bytes; }

  // What the connections so far have carried, the first kMostRecorded bytes of each direction: of the side that had
  // connected, and of the other.
  struct Recording {
    std::string of_maker, of_other;
  };
  static constexpr size_t kMostRecorded = 64 * 1024;
  std::vector<Recording> recordings() const;
  const std::string& target() const { return target_; }

  uint64_t cuts() const { return cuts_; }          // connections broken
  uint64_t accepted() const { return accepted_; }  // connections carried
  uint64_t bytes() const { return bytes_; }        // carried, both directions

 private:
  struct Pipe {  // one connection: two sockets, and what was read of each and not yet written to the other
    int fds[2];
    std::string waiting[2];  // to fds[i]
    bool ended[2] = {false, false};
    size_t recording = 0;
  };

  void Run();
  void Accept();
  void Record(const Pipe& pipe, int side, std::string_view bytes);
  bool Move(Pipe& pipe);  // false: it is over
  void Break(Pipe& pipe);

  std::string address_;
  std::string target_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::atomic<bool> stop_{false};
  std::atomic<bool> cut_{false};
  std::atomic<int64_t> cut_after_{-1};
  std::atomic<uint64_t> cuts_{0}, accepted_{0}, bytes_{0};
  std::minstd_rand random_;
  mutable std::mutex recordings_mutex_;  // guards:
  std::vector<Recording> recordings_;
  std::vector<std::unique_ptr<Pipe>> pipes_;
  std::thread thread_;
};

}  // namespace gradwire::faults
