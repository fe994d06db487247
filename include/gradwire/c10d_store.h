// Any c10d store as a gradwire Store, and the stores that an init_method names. Heavy: include it where it is needed.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/export.h"
#include "gradwire/store.h"

namespace gradwire {

// Thread-safe when the store is. Its failures become Error(kUnreachable).
GRADWIRE_API std::shared_ptr<Store> WrapStore(c10::intrusive_ptr<c10d::Store> store);

// The store that rank 0 serves at a port of its machine, which is `host` (under torchrun its agent may). Returns once
// it answers; who else is there shows later. Throws Error(kUnreachable) when it has not within `limit` (0: none), and
// at once when the port is taken. Looks at the WaitHook meanwhile.
GRADWIRE_API c10::intrusive_ptr<c10d::Store> OpenTcpStore(const std::string& host, uint16_t port, int rank,
                                                          std::chrono::milliseconds limit);

// "tcp://host:port", "file://path", or "env://" with MASTER_ADDR and MASTER_PORT; rank 0 serves a TCP store. Throws
// Error(kInvalid) for another form, kUnreachable when nobody serves it within `limit` (0: none).
GRADWIRE_API std::shared_ptr<Store> OpenStore(const std::string& init_method, int rank, int world_size,
                                              std::chrono::milliseconds limit);

}  // namespace gradwire
