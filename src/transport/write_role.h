// WriteRole: who pulls from the source of one connection, or of one direction of it, and writes.
//
// The rule by which no wake is lost, "look, then pull": Wake() leaves a mark; the holder takes the mark away, then
// pulls; who pulls nothing gives the role back, unless there is a new mark: then it pulls again.
#pragma once

#include <atomic>
#include <cstdint>

namespace gradwire::transport {

// Any thread; what only the holder may call says so. One atomic word: a small call takes no lock for it.
class WriteRole {
 public:
  enum class Given {
    kFree,    // the role is free
    kWanted,  // it is still the caller's: somebody has called Wake() since BeforePull()
    kEnded,   // End() came meanwhile and left its part to this last holder
  };

  // The role is not to be had before the first OnRoom(): the line counts as full until it is there.
  WriteRole() = default;
  WriteRole(const WriteRole&) = delete;

  // There is something to pull. True: the caller has the role now, and must pull.
  bool Wake();
  // The line takes more than it did. True: the caller has the role now.
  bool OnRoom();

  // REQUIRES: the caller has the role. Before each pull.
  void BeforePull() { state_.fetch_and(~kWanted, std::memory_order_acq_rel); }
  // REQUIRES: the caller has the role, and has pulled nothing.
  Given GiveBack();
  // REQUIRES: the caller has the role. Nobody gets it until OnRoom(). Never kWanted.
  Given GiveBackUntilRoom();

  // Nobody gets the role any more. True: nobody has it; false: its holder will be told kEnded. Once.
  bool End() { return !(state_.fetch_or(kEnded, std::memory_order_acq_rel) & kHeld); }

 private:
  static constexpr uint32_t kHeld = 1, kWanted = 2, kFull = 4, kEnded = 8;
  std::atomic<uint32_t> state_{kFull};
};

}  // namespace gradwire::transport
