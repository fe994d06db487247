// FailureOf: what a use fails with, for tests of all layers.
#pragma once

#include <functional>

#include "gradwire/error.h"

namespace gradwire {

// kInternal, "no error", when it does not fail.
inline Failure FailureOf(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.failure();
  }
  return {.code = ErrorCode::kInternal, .text = "no error"};
}

}  // namespace gradwire
