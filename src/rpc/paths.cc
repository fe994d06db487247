#include "rpc/paths.h"

#include <algorithm>
#include <utility>

namespace gradwire::rpc {

using wire::RefuseCode;

Paths::Paths(WorkerId self, WorkerId peer, bool can_dial) : self_(self), peer_(peer), can_dial_(can_dial) {}

void Paths::SetCanDial(bool can_dial) { can_dial_ = can_dial; }

// --- Connecting.

Paths::Actions Paths::OnWanted() {
  Actions actions;
  if (state_ == State::kIdle && can_dial_) StartDial(actions);
  return actions;
}

Paths::Actions Paths::OnRetry() {
  Actions actions;
  if (state_ != State::kBroken || taking_) return actions;
  if (can_dial_) {
    StartDial(actions);
  } else {
    state_ = State::kIdle;  // the peer may connect, or get addresses
  }
  return actions;
}

void Paths::StartDial(Actions& actions) {
  state_ = State::kConnecting;
  dialing_ = true;
  actions.push_back(Dial{});
}

Paths::Actions Paths::OnDialed(LinkId link) {
  if (!dialing_) return {Abort{link}};
  dialing_ = false;
  dialed_ = link;
  return {};
}

Paths::Actions Paths::OnDialFailed(bool refused) {
  Actions actions;
  if (!dialing_) return actions;
  dialing_ = false;
  if (refused) {
    state_ = State::kEnded;
    actions.push_back(Refused{});
  } else {
    Fail(actions);
  }
  return actions;
}

Paths::Actions Paths::OnChallenge(LinkId link) {
  Actions actions;
  if (state_ != State::kConnecting || dialing_ || link != dialed_) return actions;
  challenged_ = true;
  TryProve(actions);
  return actions;
}

// What the inbox tells is exact only once nothing more can come on older paths (EXACT).
void Paths::TryProve(Actions& actions) {
  if (state_ != State::kConnecting || !challenged_ || !older_.empty()) return;
  state_ = State::kProved;
  promise_ = Key{++seen_, self_};
  actions.push_back(Prove{dialed_, promise_.number});
}

Paths::Actions Paths::OnWelcome(LinkId link, wire::ResumeState told) {
  if (state_ != State::kProved || link != dialed_) return {};
  state_ = State::kOpen;
  path_ = std::exchange(dialed_, 0);
  path_is_own_ = ever_open_ = true;
  challenged_ = path_has_begun_ = false;
  return {Adopt{path_, false, std::move(told)}};
}

Paths::Actions Paths::OnRefused(LinkId link, RefuseCode code, uint64_t number) {
  Actions actions;
  if (state_ == State::kEnded || link == 0) return actions;
  if (code == RefuseCode::kEnded) {
    if (link == dialed_ || link == path_ || std::ranges::count(older_, link) > 0) return End();
    return actions;
  }
  if (link != dialed_) return actions;
  DropOwn(actions);
  switch (code) {
    case RefuseCode::kOtherWorker:
    case RefuseCode::kVersion:
    case RefuseCode::kKey:
      state_ = State::kConnecting;
      dialing_ = true;
      break;
    case RefuseCode::kStale: seen_ = std::max(seen_, number); [[fallthrough]];
    default: Fail(actions);
  }
  return actions;
}

void Paths::DropOwn(Actions& actions) {
  if (std::exchange(dialing_, false)) actions.push_back(DropDial{});
  if (dialed_ != 0) actions.push_back(Abort{std::exchange(dialed_, 0)});
  challenged_ = false;
}

// The promise stays: the attempt's Proof may still be read, and taken (RETAIN).
void Paths::Fail(Actions& actions) {
  state_ = State::kBroken;
  actions.push_back(AwaitRetry{Pause::kRetry, ++failures_});
}

// --- Being connected to.

Paths::Actions Paths::OnProof(LinkId link, uint64_t number, wire::ResumeState told) {
  if (Knows(link)) return {};
  if (state_ == State::kEnded) return {Refuse{link, RefuseCode::kEnded, 0}};
  const Key key{number, peer_};
  if (key <= promise_) return {Refuse{link, RefuseCode::kStale, seen_}};
  promise_ = key;
  seen_ = std::max(seen_, number);
  Actions actions;
  DropOwn(actions);
  if (taking_) actions.push_back(Abort{taking_->link});
  if (path_ != 0) {
    older_.push_back(path_);
    actions.push_back(Abort{std::exchange(path_, 0)});
    actions.push_back(PathLost{});
  }
  state_ = State::kBroken;
  taking_ = Taking{link, key, std::move(told)};
  TryTake(actions);
  return actions;
}

// Frames that are still read on older paths count for what the inbox tells (EXACT).
void Paths::TryTake(Actions& actions) {
  if (!taking_ || !older_.empty()) return;
  state_ = State::kOpen;
  path_ = taking_->link;
  path_is_own_ = path_has_begun_ = false;
  ever_open_ = true;
  actions.push_back(Adopt{path_, true, std::move(taking_->told)});
  taking_.reset();
}

bool Paths::Knows(LinkId link) const {
  return link == path_ || link == dialed_ || (taking_ && taking_->link == link) || std::ranges::count(older_, link) > 0;
}

// --- Being open, and the end.

Paths::Actions Paths::OnFirstFrame(LinkId link) {
  if (link != 0 && link == path_) {
    failures_ = 0;
    path_has_begun_ = true;
  }
  return {};
}

Paths::Actions Paths::OnClosed(LinkId link) {
  Actions actions;
  if (link == 0) return actions;
  if (std::erase(older_, link) > 0) {
    TryTake(actions);
    TryProve(actions);
  } else if (link == path_) {
    LosePath(actions);
  } else if (link == dialed_) {
    dialed_ = 0;
    challenged_ = false;
    Fail(actions);
  } else if (taking_ && link == taking_->link) {
    taking_.reset();
    Fail(actions);
  }
  return actions;
}

// Who had made the path connects at once, the other a moment later: so two connect at once rarely. A path that brought
// nothing counts as one more failure, or paths that break at once would follow each other without a pause.
void Paths::LosePath(Actions& actions) {
  path_ = 0;
  if (state_ == State::kEnded) return;
  actions.push_back(PathLost{});
  if (!path_has_begun_) return Fail(actions);
  if (path_is_own_ && can_dial_) return StartDial(actions);
  state_ = State::kBroken;
  actions.push_back(AwaitRetry{Pause::kAccepted, failures_});
}

Paths::Actions Paths::End() {
  Actions actions;
  if (std::exchange(state_, State::kEnded) == State::kEnded) return actions;
  DropOwn(actions);
  if (taking_) actions.push_back(Refuse{taking_->link, RefuseCode::kEnded, 0});
  taking_.reset();
  return actions;
}

}  // namespace gradwire::rpc
