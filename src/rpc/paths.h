// Paths: which connection of a pair is in use, and when another is to be made (O3). A pure state machine: it is told
// what happens and answers with what to do. Connections are named by LinkIds that the session gives out.
//
// A connection whose connecting side has sent its Proof is an attempt, with a key (number, connector). The promise is
// the highest key that this side has proved itself, taken or adopted; it outlives connections. A side takes another's
// attempt only above its promise, so both agree on one path in the end.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "wire/handshake.h"

namespace gradwire::rpc {

class Paths {
 public:
  using LinkId = uint64_t;  // of this session, never used twice; 0 is none

  // Ranks by number, then the connector with the lower WorkerId stands above.
  struct Key {
    uint64_t number = 0;
    WorkerId connector;
    friend std::strong_ordering operator<=>(const Key& a, const Key& b) {
      if (const auto order = a.number <=> b.number; order != 0) return order;
      return b.connector <=> a.connector;
    }
    friend bool operator==(const Key&, const Key&) = default;
  };

  // What to do, in this order. Adopt, and asking the inbox for Prove, under the session's send mutex, in which the
  // event came: a path that is adopted in between must not have its answers forgotten. The others after unlock.
  struct Dial {};      // connect to the peer; ends in OnDialed(link) or OnDialFailed()
  struct DropDial {};  // the dial that has not ended is not wanted; nothing is told of it
  struct Prove {       // send Proof, and what the inbox says on Resume()
    LinkId link;
    uint64_t number;
  };
  // The path is `link` from now on: the outbox resumes by `told`. `accepted`: send Welcome and the inbox's Resume();
  // else this side had connected.
  struct Adopt {
    LinkId link;
    bool accepted;
    wire::ResumeState told;
  };
  struct Refuse {  // send it and close
    LinkId link;
    wire::RefuseCode code;
    uint64_t number;
  };
  struct Abort {
    LinkId link;
  };
  enum class Pause { kRetry, kAccepted };  // doubles with each failure; short, of who had accepted the lost path
  struct AwaitRetry {                      // call OnRetry() after it, instead of after an earlier one
    Pause pause;
    int failures;  // to get a path, in a row
  };
  struct PathLost {};  // the grace time begins
  struct Refused {};   // the peer is not there any more, at any address: the pair ends
  using Action = std::variant<Dial, DropDial, Prove, Adopt, Refuse, Abort, AwaitRetry, PathLost, Refused>;
  using Actions = std::vector<Action>;

  // `can_dial`: the peer has addresses; without, it is waited for.
  Paths(WorkerId self, WorkerId peer, bool can_dial);

  // Events that mean nothing where they come, as those of a connection that was given up, change nothing.

  Actions OnWanted();             // a message is queued, or can_dial is new; nothing when a path is there or on its way
  Actions OnRetry();              // a pause is over
  Actions OnDialed(LinkId link);  // connected; Hello has been sent on it
  // Nobody listens at any address, or somebody else does: `refused`. Else it may be otherwise a moment later.
  Actions OnDialFailed(bool refused);
  Actions OnChallenge(LinkId link);                                       // of the own dial
  Actions OnProof(LinkId link, uint64_t number, wire::ResumeState told);  // checked: the other side is the peer
  Actions OnWelcome(LinkId link, wire::ResumeState told);
  // kOtherWorker, kVersion, kKey: somebody else is at this address. The dial goes on with the next one, and ends as it
  // would have. kEnded: as End(); the caller has the text.
  Actions OnRefused(LinkId link, wire::RefuseCode code, uint64_t number);
  Actions OnClosed(LinkId link);      // its read role has ended
  Actions OnFirstFrame(LinkId link);  // of an adopted link: failures are forgotten
  void SetCanDial(bool can_dial);
  // For good. Links that are no path are aborted or refused; the path is left to the caller, who says goodbye on it.
  Actions End();

  // kBroken: a pause is running, or an attempt of the other side is being taken.
  enum class State : uint8_t { kIdle, kConnecting, kProved, kOpen, kBroken, kEnded };
  State state() const { return state_; }
  LinkId path() const { return path_; }  // 0: none
  bool ever_open() const { return ever_open_; }
  uint64_t older_open() const { return older_.size(); }  // older paths that have not closed

 private:
  // An attempt of the other side, until all older paths have closed.
  struct Taking {
    LinkId link = 0;
    Key key;
    wire::ResumeState told;
  };

  bool Knows(LinkId link) const;
  void StartDial(Actions& actions);
  void TryProve(Actions& actions);
  void TryTake(Actions& actions);
  void DropOwn(Actions& actions);   // the own dial, or attempt
  void Fail(Actions& actions);      // no path came of it: after a pause, another try
  void LosePath(Actions& actions);  // its link has closed

  const WorkerId self_;
  const WorkerId peer_;
  bool can_dial_;
  State state_ = State::kIdle;
  LinkId path_ = 0;
  bool path_is_own_ = false;     // this side had connected it
  bool path_has_begun_ = false;  // its first frame has come
  LinkId dialed_ = 0;            // of kConnecting, once connected, and of kProved
  bool dialing_ = false;         // Dial was told, and has not ended
  bool challenged_ = false;      // the Challenge came; the Proof waits for older connections to close
  Key promise_;
  uint64_t seen_ = 0;  // highest number used or heard of
  std::optional<Taking> taking_;
  std::vector<LinkId> older_;
  bool ever_open_ = false;
  int failures_ = 0;  // to connect, in a row

  friend struct PathsExplorer;
};

}  // namespace gradwire::rpc
