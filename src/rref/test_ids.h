// Ids that tests of the tables share: an owner, two users, a value.
#pragma once

#include "base/ids.h"

namespace gradwire::rref {

inline constexpr WorkerId kO{0, 7}, kU{1, 7}, kV{2, 7};
inline constexpr RRefId kRRef{kU, 0};

}  // namespace gradwire::rref
