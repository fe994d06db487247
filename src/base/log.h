// Log: one line per event, to stderr or to a sink of the program's choice.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace gradwire {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Thread-safe. Dropped below the level of the environment variable GRADWIRE_LOG (debug, info, warning, error; warning
// when unset). Never throws.
void Log(LogLevel level, std::string_view text) noexcept;

// Where lines go instead of stderr, whatever their level; empty: back to stderr. Returns the one before.
using LogSink = std::function<void(LogLevel, std::string_view)>;
LogSink SetLogSink(LogSink sink);

}  // namespace gradwire
