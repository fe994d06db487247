// What a caught exception says of the failure of a call or a future.
#pragma once

#include "gradwire/error.h"

namespace gradwire {

// Of the exception that is being handled: an Error's own failure, of others kRemote with type and text (of libtorch's
// without its frames of C++). To be called in a catch (...); lets the unwinding of a thread that ends go on.
Failure CaughtFailure();

}  // namespace gradwire
