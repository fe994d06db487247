// What the contract tests of all transports share: two sides that can reach each other, over the transport under test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/event.h"
#include "transport/transport.h"
#include "transport_contract/queue_source.h"
#include "transport_contract/recorder.h"

namespace gradwire::transport {

// Makes transports that reach each other, each with threads of its own. Outlives them.
class Wiring {
 public:
  virtual ~Wiring() = default;
  virtual std::unique_ptr<Transport> Make() = 0;
  virtual std::string nobody() const = 0;  // an address where nobody listens
};

using WiringMaker = std::unique_ptr<Wiring> (*)();
std::unique_ptr<Wiring> MakeTcpWiring();
std::unique_ptr<Wiring> MakeInprocWiring();
std::unique_ptr<Wiring> MakeSlowInprocWiring();  // frames take their time

inline const auto kAllTransports =
    testing::Values(std::pair{"tcp", &MakeTcpWiring}, std::pair{"inproc", &MakeInprocWiring},
                    std::pair{"slow_inproc", &MakeSlowInprocWiring});

class Contract : public testing::TestWithParam<std::pair<std::string, WiringMaker>> {
 protected:
  // One end of a connection, as who sends on it sees it.
  struct Way {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<QueueSource> source;
    void Send(OutFrame frame) const {
      source->Put(std::move(frame));
      connection->Wake();
    }
  };

  // One connection, seen from both of its ends.
  struct Line {
    std::shared_ptr<Connection> near, far;  // who connected, who accepted
    std::shared_ptr<Recorder> at_near = std::make_shared<Recorder>();
    std::shared_ptr<Recorder> at_far = std::make_shared<Recorder>();
    std::shared_ptr<QueueSource> from_near = std::make_shared<QueueSource>();
    std::shared_ptr<QueueSource> from_far = std::make_shared<QueueSource>();
    void Start() {
      StartNear();
      StartFar();
    }
    void StartNear() { near->Start(at_near, from_near); }
    void StartFar() { far->Start(at_far, from_far); }
    Way near_way() const { return {near, from_near}; }
    Way far_way() const { return {far, from_far}; }
    void SendNear(OutFrame frame) const { near_way().Send(std::move(frame)); }
    void SendFar(OutFrame frame) const { far_way().Send(std::move(frame)); }
  };

  void SetUp() override {
    near_side_ = wiring_->Make();
    far_side_ = wiring_->Make();
    address_ = far_side_->Listen([this](std::shared_ptr<Connection> connection) { accepted_.Put(connection); });
  }
  void TearDown() override {
    near_side_->Stop();
    far_side_->Stop();
  }

  Line Connect() {
    Line line;
    std::tie(line.near, std::ignore) = TryConnect(address_, kPatience);
    line.far = accepted_.Take();
    EXPECT_TRUE(line.near && line.far);
    return line;
  }
  Line ConnectAndStart() {
    Line line = Connect();
    line.Start();
    return line;
  }

  std::pair<std::shared_ptr<Connection>, Failure> TryConnect(const std::string& address, Duration limit) {
    std::pair<std::shared_ptr<Connection>, Failure> result;
    Event done;
    near_side_->Connect(address, std::chrono::steady_clock::now() + limit,
                        [&](std::shared_ptr<Connection> connection, const Failure& failure) {
                          result = {std::move(connection), failure};
                          done.Set();
                        });
    EXPECT_TRUE(done.Wait(kPatience));
    return result;
  }

  // Connections that the far side accepted, in order.
  class Accepted {
   public:
    void Put(std::shared_ptr<Connection> connection) {
      std::lock_guard lock(mutex_);
      connections_.push_back(std::move(connection));
      changed_.notify_all();
    }
    std::shared_ptr<Connection> Take() {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, kPatience, [&] { return !connections_.empty(); })) return nullptr;
      auto first = std::move(connections_.front());
      connections_.erase(connections_.begin());
      return first;
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::shared_ptr<Connection>> connections_;
  };

  std::unique_ptr<Wiring> wiring_ = GetParam().second();
  Accepted accepted_;
  std::unique_ptr<Transport> near_side_, far_side_;
  std::string address_;
};

}  // namespace gradwire::transport
