// WorkerInfo: who a worker is, as programs see it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace gradwire {

struct WorkerInfo {
  std::string name;  // letters, digits, "_", ":", "-"; under 128 characters; unique in its group
  int64_t id = -1;   // the rank

  auto operator<=>(const WorkerInfo&) const = default;
};

}  // namespace gradwire
