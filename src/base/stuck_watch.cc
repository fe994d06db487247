#include "base/stuck_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gradwire {
bool AnyComputes(const std::vector<pid_t>& threads) {
  for (const pid_t thread : threads) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/stat", static_cast<int>(thread));
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    char text[128] = {};  // "id (name) state ..."; the name has at most 15 characters
    const ssize_t size = read(file, text, sizeof(text) - 1);
    close(file);
    if (size <= 0) continue;
    const char* const name_end = std::strrchr(text, ')');
    if (name_end && std::strncmp(name_end, ") R", 3) == 0) return true;
  }
  return false;
}

void StuckWatch::Begin(uint64_t begun) {
  begun_ = begun;
  standing_ = 0;
}

bool StuckWatch::Look(uint64_t begun, bool computing, size_t stuck) {
  if (begun != begun_) {
    Begin(begun);
    return false;
  }
  ++standing_;
  if (standing_ < (computing ? kPatience : 1)) return false;
  if (stuck >= (computing ? std::min(max_computing_, max_stuck_) : max_stuck_)) return false;
  standing_ = 0;
  return true;
}

}  // namespace gradwire
