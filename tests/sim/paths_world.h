// Two sides, what they have of each other's messages, and the connections between them. No step is chosen here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "paths_explore.h"
#include "rpc/paths.h"

// What is private of Paths: to compare states, and to switch rules off.
namespace gradwire::rpc {
struct PathsExplorer {
  // `order`: the links by which those of `paths` are named, whatever their ids. `low`: the path number to count from.
  static void AppendKey(const Paths& paths, const std::vector<Paths::LinkId>& order, std::string& key,
                        uint64_t low = 1);
  static void AppendTold(const wire::ResumeState& told, std::string& key);
  static uint64_t seen(const Paths& paths) { return paths.seen_; }
  static Paths::Key& promise(Paths& paths) { return paths.promise_; }
  static bool coherent(const Paths& paths);
};
}  // namespace gradwire::rpc

namespace gradwire::sim::paths {

using rpc::Paths;
using LinkId = Paths::LinkId;
using wire::RefuseCode;

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void Require(bool holds, const char* guarantee) {
  if (!holds) throw Broken(guarantee);
}

inline constexpr std::array<WorkerId, 2> kIds = {WorkerId{0, 1}, WorkerId{1, 1}};

enum class Kind : uint8_t { kChallenge, kProof, kWelcome, kRefuse, kMessage, kAck };
struct Frame {
  Kind kind;
  RefuseCode code = RefuseCode::kStale;
  uint8_t number = 0;  // of a path or a message
  uint8_t taken = 0;   // with a Proof and a Welcome: the resume state
};

// One side's end of a connection. kClosing: given up, but its read role has not ended.
enum class End : uint8_t { kOpen, kClosing, kClosed };

struct Connection {
  LinkId id;
  uint8_t maker;  // which side connected
  bool cut = false;
  bool proved = false;  // the other side has read the Proof
  std::array<End, 2> ends{};
  std::array<bool, 2> adopted{};  // messages are taken on it
  std::array<bool, 2> aborted{};  // this side gave it up at once: what it wrote may not arrive
  std::array<std::vector<Frame>, 2> into;

  std::string Key() const;
};

struct Side {
  Paths paths;
  bool wanted = false;           // OnWanted() was called
  bool dialing = false;          // as told by Dial
  bool pausing = false;          // as told by AwaitRetry
  uint8_t taken = 0;             // messages of the other side
  uint8_t acked = 0;             // own ones that are freed
  uint8_t next = 1;              // own one to send
  Paths::Key adopted_promise{};  // of a mistake: the promise at the last adopted path
};

class World {
 public:
  explicit World(const PathsBounds& bounds);

  std::string Key() const;  // equal for states that go on alike
  Connection* Find(LinkId id);

  // Carries out what `me`'s Paths answers to an event, in order, and checks what is told.
  template <class Event>
  void Tell(int me, Event event) {
    const Paths::Key before = rpc::PathsExplorer::promise(sides[me].paths);
    const Paths::Actions actions = event(sides[me].paths);
    if (!mistaken) {
      Require(before <= rpc::PathsExplorer::promise(sides[me].paths), "PROMISE: it has sunk");
      Require(rpc::PathsExplorer::coherent(sides[me].paths), "ONE: a path, and another on its way");
    }
    for (const Paths::Action& action : actions) Do(me, action);
    Settle();
  }

  void Put(int me, LinkId id, Frame frame);
  void Close(int me, LinkId id, bool at_once);
  void Settle();  // drops what nobody reads any more

  std::array<Side, 2> sides;
  std::vector<Connection> connections;
  LinkId last_id = 0;
  int breaks = 0;  // so far
  int strangers = 0;
  bool ended = false;  // somebody has ended the pair with a cause
  bool mistaken;

 private:
  void Do(int me, const Paths::Action& action);
  void Adopt(int me, const Paths::Adopt& adopt);
};

}  // namespace gradwire::sim::paths
