#include "gradwire/call.h"

namespace gradwire {

Payload& Outcome::value() {
  if (!ok()) throw Error(failure());
  return std::get<Payload>(result_);
}

bool CallHandle::Cancel() const {
  const auto canceller = canceller_.lock();
  return canceller && canceller->CancelCall(call_);
}

}  // namespace gradwire
