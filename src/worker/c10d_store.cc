#include "gradwire/c10d_store.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/error.h"
#include "gradwire/wait_hook.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr steady_clock::duration kFirstPause = milliseconds(1), kLongestPause = milliseconds(100);

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Without the frames that libtorch adds.
std::string Cause(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  return own ? own->what_without_backtrace() : error.what();
}

class C10dStore final : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void Set(const std::string& key, const std::string& value) override {
    Guard("set", key, [&] { store_->set(key, Bytes(value)); });
  }

  // Looks again and again: each wait of c10d that ends without the key is logged with its whole stack.
  std::optional<std::string> Get(const std::string& key, milliseconds limit) override {
    const auto begin = steady_clock::now();
    for (;;) {
      bool there = false;
      Guard("check", key, [&] { there = store_->check({key}); });
      if (there) break;
      const steady_clock::duration waited = steady_clock::now() - begin;
      if (waited >= limit) return std::nullopt;
      std::this_thread::sleep_for(std::min({std::max(waited / 8, kFirstPause), kLongestPause, limit - waited}));
      if (const WaitHook::Hook hook = WaitHook::current()) hook();
    }
    std::optional<std::string> value;
    Guard("get", key, [&] { value = Text(store_->get(key)); });
    return value;
  }

  int64_t Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    Guard("add", key, [&] { sum = store_->add(key, amount); });
    return sum;
  }

  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) override {
    std::string value;
    Guard("compareSet", key, [&] { value = Text(store_->compareSet(key, Bytes(expected), Bytes(desired))); });
    return value;
  }

  std::string Host() const override {
    c10::intrusive_ptr<c10d::Store> store = store_;
    if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) store = prefixed->getUnderlyingNonPrefixStore();
    const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get());
    return tcp ? tcp->getHost() : "";
  }

 private:
  template <class F>
  void Guard(const char* what, const std::string& key, F f) {
    try {
      f();
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kUnreachable,
                  std::string("the rendezvous store failed to ") + what + " '" + key + "': " + Cause(error));
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value) {
    throw Error(ErrorCode::kInvalid, std::string("init_method env:// needs the environment variable ") + name);
  }
  return value;
}

std::shared_ptr<Store> OpenTcp(const std::string& host, const std::string& port_text, int rank, milliseconds limit) {
  char* end = nullptr;
  const long port = std::strtol(port_text.c_str(), &end, 10);
  if (host.empty() || end == port_text.c_str() || *end != '\0' || port < 1 || port > 65535) {
    throw Error(ErrorCode::kInvalid, "'" + host + ":" + port_text + "' is no host:port to meet at");
  }
  return WrapStore(OpenTcpStore(host, static_cast<uint16_t>(port), rank, limit));
}

}  // namespace

std::shared_ptr<Store> WrapStore(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<C10dStore>(std::move(store));
}

std::shared_ptr<Store> OpenStore(const std::string& init_method, int rank, int world_size, milliseconds limit) {
  const size_t colon = init_method.find("://");
  const std::string scheme = init_method.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : init_method.substr(colon + 3);
  if (scheme == "env") return OpenTcp(Environment("MASTER_ADDR"), Environment("MASTER_PORT"), rank, limit);
  if (scheme == "tcp") {
    const size_t port = rest.rfind(':');
    return OpenTcp(rest.substr(0, port), port == std::string::npos ? "" : rest.substr(port + 1), rank, limit);
  }
  if (scheme == "file" && !rest.empty()) {
    // libtorch tries for ever to make a file that cannot be made.
    const std::string folder = rest.substr(0, rest.rfind('/') + 1);
    if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
      throw Error(ErrorCode::kUnreachable,
                  "no store to meet at " + init_method + ": the folder '" + folder + "': " + std::strerror(errno));
    }
    return WrapStore(c10::make_intrusive<c10d::FileStore>(rest, world_size));
  }
  throw Error(ErrorCode::kInvalid, "init_method '" + init_method + "' is none of tcp://host:port, file://path, env://");
}

}  // namespace gradwire
