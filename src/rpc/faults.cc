#include "gradwire/faults.h"

namespace gradwire {
namespace {

bool Matches(const Fault& fault, const std::string& function, bool remote) {
  if (fault.remote && *fault.remote != remote) return false;
  if (fault.function.empty() || fault.function.back() != '*') return fault.function == function;
  const size_t length = fault.function.size() - 1;
  return function.compare(0, length, fault.function, 0, length) == 0;
}

}  // namespace

std::optional<Failure> Faults::FailSend(const std::string& function, bool remote) {
  std::lock_guard lock(mutex_);
  for (Fault& fault : faults_) {
    if (fault.failures <= 0 || !Matches(fault, function, remote)) continue;
    --fault.failures;
    return Failure{.code = ErrorCode::kUnreachable,
                   .text = "a fault was put in: the call of '" + function + "' was not sent"};
  }
  return std::nullopt;
}

std::chrono::milliseconds Faults::DelayOf(const std::string& function, bool remote) const {
  std::chrono::milliseconds delay{0};
  for (const Fault& fault : faults_) {
    if (Matches(fault, function, remote)) delay += fault.delay;
  }
  return delay;
}

}  // namespace gradwire
