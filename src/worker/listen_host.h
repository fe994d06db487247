// Which of its interfaces a worker listens on.
#pragma once

#include <string>

#include "gradwire/store.h"

namespace gradwire {

// The first that is given: `chosen`, the environment variable GRADWIRE_HOST, the interface that leads to the machine
// that serves `store`; loopback when the store is none of one machine's. Throws Error when no interface leads there.
std::string ListenHost(const std::string& chosen, const Store& store);

}  // namespace gradwire
