#include "gradwire/call.h"

namespace gradwire {

Payload& Outcome::value() {
  if (!ok()) throw Error(failure());
  return std::get<Payload>(result_);
}

}  // namespace gradwire
