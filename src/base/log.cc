#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("GRADWIRE_LOG");
  for (size_t i = 0; text && i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;
}

// Leaked: threads may log while the process ends.
struct Target {
  std::mutex mutex;
  LogSink sink;
};
Target& TheTarget() {
  static auto* const target = new Target;
  return *target;
}

}  // namespace

void Log(LogLevel level, std::string_view text) noexcept {
  static const LogLevel least = LevelFromEnvironment();
  try {
    LogSink sink;
    {
      std::lock_guard lock(TheTarget().mutex);
      sink = TheTarget().sink;
    }
    if (sink) return sink(level, text);
    if (level < least) return;
    std::string line = "gradwire ";
    line.append(kNames[static_cast<size_t>(level)]).append(": ").append(text).push_back('\n');
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
    // a log line is not worth an error
  }
}

LogSink SetLogSink(LogSink sink) {
  std::lock_guard lock(TheTarget().mutex);
  return std::exchange(TheTarget().sink, std::move(sink));
}

}  // namespace gradwire
