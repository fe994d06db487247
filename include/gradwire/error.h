// Errors of gradwire: one exception type with a closed code, the same in memory and on the wire (guarantee C5).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gradwire/export.h"

namespace gradwire {

// Chosen by what the catcher can do about it. The numbers are part of the wire format: never reuse one.
enum class ErrorCode : uint8_t {
  kDisconnected = 1,      // the peer's session ended; the text says whether the request may have run
  kUnreachable = 2,       // the peer lives, but no connection to it can be made
  kTimedOut = 3,          // the call's time is over
  kCancelled = 4,         // cancelled by its caller
  kOverloaded = 5,        // the peer takes no more requests now
  kUnknownFunction = 6,   // no such function on the callee
  kUnknownWorker = 7,     // no such worker in the group
  kInvalid = 8,           // bad arguments, or a use at the wrong time (before start, after shutdown)
  kPermissionDenied = 9,  // refused by a rule of the callee
  kRemote = 10,           // the function itself failed on the callee
  kInternal = 11,         // a defect of gradwire
};

// "TimedOut" and so on; "Unknown" for a number that is no code.
GRADWIRE_API std::string_view ErrorCodeName(ErrorCode code);

// What went wrong, as a value. Empty fields are unknown.
struct Failure {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;       // complete sentence for a person; names worker, function and cause; never parsed
  std::string worker;     // name of the worker where it happened
  std::string type_name;  // kRemote: type of the exception on the callee, "ValueError" or "c10::IndexError"; kHasLeft
  std::string traceback;  // kRemote: formatted, may be empty
  std::string pickled;    // kRemote from Python: the pickled exception, may be empty
};

// The type_name of a kDisconnected for a worker that has left by itself: it is not lost.
inline constexpr std::string_view kHasLeft = "HasLeft";

// The only exception that the library throws across its public interface.
class GRADWIRE_API Error : public std::runtime_error {
 public:
  explicit Error(Failure failure);
  Error(ErrorCode code, std::string text);
  ~Error() override;

  ErrorCode code() const { return failure_.code; }
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

}  // namespace gradwire
