// How the session of a pair has ended, as the judges of losses need to know it (docs/membership.md).
#pragma once

#include <cstdint>

namespace gradwire::rpc {

struct SessionEnd {
  enum class How : uint8_t {
    kHere,     // this side has ended it
    kGone,     // nobody listens at the peer's address, another life is there, or it has left or ended
    kPair,     // the two do not understand each other; either may be well
    kRemoved,  // the other side has a view of the group without this worker
  };
  How how = How::kHere;
  uint64_t epoch = 0;  // of that view
};

}  // namespace gradwire::rpc
