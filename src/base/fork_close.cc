#include "base/fork_close.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gradwire {
namespace {

// The inode of each socket, by its number; 0: none. Without locks, as a child finds it in whatever state it was. Larger
// numbers than these are left alone.
constexpr size_t kSockets = 1 << 16;
std::array<std::atomic<uint64_t>, kSockets> inodes;
std::atomic<size_t> count{0};  // the largest number, plus one

uint64_t InodeOf(int socket) {
  struct stat about {};
  if (fstat(socket, &about) != 0 || !S_ISSOCK(about.st_mode)) return 0;
  return about.st_ino;
}

// In the child, before anything else.
void CloseInherited() {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t inode = inodes[i].exchange(0);
    if (inode != 0 && InodeOf(static_cast<int>(i)) == inode) close(static_cast<int>(i));
  }
  count = 0;
}

}  // namespace

int CloseInForkedChildren(int socket) {
  if (socket < 0) return socket;
  static const int failed = pthread_atfork(nullptr, nullptr, CloseInherited);
  const auto place = static_cast<size_t>(socket);
  if (failed != 0 || place >= kSockets) return socket;
  inodes[place] = InodeOf(socket);
  size_t seen = count;
  while (seen <= place && !count.compare_exchange_weak(seen, place + 1)) {
  }
  return socket;
}

}  // namespace gradwire
