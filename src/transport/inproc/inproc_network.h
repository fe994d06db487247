// InprocNetwork: the addresses that in-process transports reach each other by. An object, not a global: two networks in
// one process know nothing of each other.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gradwire::transport {

class InprocEnd;
class InprocListener;

// Any thread. May end before its transports.
class InprocNetwork {
 public:
  InprocNetwork() : state_(std::make_shared<State>()) {}
  InprocNetwork(const InprocNetwork&) = delete;

  // Breaks all connections that were made to `address`, as a cut line does: what is on its way is lost, both sides end
  // with kDisconnected. Later connects work.
  void Cut(const std::string& address);

 private:
  friend class InprocTransport;
  struct State {
    std::string Add(const std::shared_ptr<InprocListener>& listener);
    std::shared_ptr<InprocListener> Find(const std::string& address);
    void Remove(const std::string& address);
    void AddEnds(const std::string& address, const std::vector<std::shared_ptr<InprocEnd>>& added);

    std::mutex mutex;  // guards:
    int last_address = 0;
    std::map<std::string, std::weak_ptr<InprocListener>> listeners;
    std::multimap<std::string, std::weak_ptr<InprocEnd>> ends;  // both of each connection, by the address connected to
  };

  const std::shared_ptr<State> state_;
};

}  // namespace gradwire::transport
