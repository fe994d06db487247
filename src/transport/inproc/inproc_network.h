// InprocNetwork: the addresses that in-process transports reach each other by, and what goes wrong between them. An
// object, not a global: two networks in one process know nothing of each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace gradwire::transport {

class InprocEnd;
class InprocLine;
class InprocListener;
class InprocTiming;

// Any thread. May end before its transports. A transport is named by the address that it listens at; one that does not
// listen has no name, and only what it connects to can be told apart. What a transport has with itself stays, as inside
// of a process nothing breaks.
class InprocNetwork {
 public:
  struct Options {
    // With a clock each frame and each way of a connect takes a time by it, from `least` to `most` by chance. Frames of
    // one direction keep their order. An aborted connection may lose what was on its way. Without: all at once.
    std::shared_ptr<Clock> clock{};
    Duration least{0}, most{0};
    uint64_t seed = 1;
  };
  InprocNetwork();
  explicit InprocNetwork(const Options& options);
  InprocNetwork(const InprocNetwork&) = delete;

  // Called once for each direction of each connection: of so many frames on their way the answer is how many arrive
  // yet, the first ones. Must not call back into the network. Empty: none arrive.
  using Survivors = std::function<size_t(size_t waiting)>;

  // Breaks all connections of the transport at `address` with others, whoever connected. Both sides end with
  // kDisconnected, each once it has what survives. Later connects work.
  void Cut(const std::string& address, const Survivors& survivors = {});
  // The same for those between two transports.
  void Cut(const std::string& one, const std::string& other, const Survivors& survivors = {});

  // The transport at `address` dies: its connections are cut, and from then on connects to it and by it are refused.
  void Kill(const std::string& address, const Survivors& survivors = {});

  // Nothing arrives any more between a transport of `some` and one of `others`: neither frames nor ends of connections.
  // A connect between them runs into its limit, or fails at once where there is no clock: kUnreachable.
  void Part(const std::vector<std::string>& some, const std::vector<std::string>& others);
  // Ends all of that: what waited arrives.
  void Heal();

 private:
  friend class InprocConnect;
  friend class InprocTransport;
  struct Connected {
    std::string from, to;
    std::weak_ptr<InprocLine> forth, back;
    bool expired() const { return forth.expired() && back.expired(); }
  };
  struct State {
    std::string Add(const std::shared_ptr<InprocListener>& listener);
    void Remove(const std::string& address);
    // Who listens at `to`, for who listens at `from`; nullptr: nobody does.
    std::shared_ptr<InprocListener> Find(const std::string& from, const std::string& to);
    bool AreParted(const std::string& one, const std::string& other);
    bool IsKilledLocked(const std::string& from, const std::string& to) const;
    bool ArePartedLocked(const std::string& one, const std::string& other) const;
    void AddConnection(const std::string& from, const std::string& to, const InprocEnd& near, const InprocEnd& far);
    // The lines of connections for which `chosen` is true.
    std::vector<std::shared_ptr<InprocLine>> Lines(const std::function<bool(const Connected&)>& chosen);

    std::shared_ptr<InprocTiming> timing;  // constant
    std::mutex mutex;                      // guards:
    int last_address = 0;
    std::map<std::string, std::weak_ptr<InprocListener>> listeners;
    std::set<std::string> killed;
    std::set<std::pair<std::string, std::string>> parted;  // both ways round
    std::vector<Connected> connections;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace gradwire::transport
