#include "gradwire/error.h"

#include <utility>

namespace gradwire {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kDisconnected: return "Disconnected";
    case ErrorCode::kUnreachable: return "Unreachable";
    case ErrorCode::kTimedOut: return "TimedOut";
    case ErrorCode::kCancelled: return "Cancelled";
    case ErrorCode::kOverloaded: return "Overloaded";
    case ErrorCode::kUnknownFunction: return "UnknownFunction";
    case ErrorCode::kUnknownWorker: return "UnknownWorker";
    case ErrorCode::kInvalid: return "Invalid";
    case ErrorCode::kPermissionDenied: return "PermissionDenied";
    case ErrorCode::kRemote: return "Remote";
    case ErrorCode::kInternal: return "Internal";
  }
  return "Unknown";
}

Error::Error(Failure failure) : std::runtime_error(failure.text), failure_(std::move(failure)) {}

Error::Error(ErrorCode code, std::string text) : Error(Failure{.code = code, .text = std::move(text)}) {}

Error::~Error() = default;

}  // namespace gradwire
