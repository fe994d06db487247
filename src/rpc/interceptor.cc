#include "rpc/interceptor.h"

#include <algorithm>

#include "gradwire/error.h"

namespace gradwire::rpc {

void CheckRequired(const Interceptors& interceptors, const std::vector<wire::Extension>& extensions,
                   const std::string& what) {
  for (const wire::Extension& extension : extensions) {
    if ((extension.tag & wire::Extension::kRequired) == 0) continue;
    if (std::any_of(interceptors.begin(), interceptors.end(), [&](const auto& i) { return i->Reads(extension.tag); })) {
      continue;
    }
    throw Error(ErrorCode::kInvalid, what + " carries the required extension field " + std::to_string(extension.tag) +
                                         ", which is not known here");
  }
}

}  // namespace gradwire::rpc
