// Log: one line per event, to stderr or to a sink of the program's choice. A thread of its own writes them, so that a
// full pipe or a slow sink never holds up who has something to say, perhaps under a role (O2).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace gradwire {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Queues the line; lines keep their order. Dropped below the level of the environment variable GRADWIRE_LOG (debug,
// info, warning, error; warning when unset), and when kLongestLog lines wait already: a line tells how many were.
// Any thread. Never throws, never blocks.
void Log(LogLevel level, std::string_view text) noexcept;

inline constexpr size_t kLongestLog = 4096;

// Starts the thread that writes, unless it runs; Log() would start it itself.
void StartLog() noexcept;

// Waits until all lines so far are written; false when `limit` has passed first. The end of the program does it for a
// second.
bool FlushLog(std::chrono::milliseconds limit = std::chrono::seconds(1));

// Where lines go instead of stderr, whatever their level; empty: back to stderr. Returns the one before, which has been
// given all its lines then and is not running. It runs on a thread of its own and may log.
using LogSink = std::function<void(LogLevel, std::string_view)>;
LogSink SetLogSink(LogSink sink);

}  // namespace gradwire
