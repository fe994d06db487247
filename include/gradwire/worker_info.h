// WorkerInfo: who a worker is, as programs see it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace gradwire {

struct WorkerInfo {
  std::string name;  // letters, digits, "_", ":", "-"; under 128 characters; unique in its group
  int64_t id = -1;   // the rank

  // Tells a worker from another that takes its name and rank after it: calls go to no other than the one that is meant.
  // 0: whichever is there. Neither compared nor printed.
  uint32_t incarnation = 0;

  friend bool operator==(const WorkerInfo& a, const WorkerInfo& b) { return (a <=> b) == 0; }
  friend std::strong_ordering operator<=>(const WorkerInfo& a, const WorkerInfo& b) {
    if (const auto names = a.name <=> b.name; names != 0) return names;
    return a.id <=> b.id;
  }
};

}  // namespace gradwire
