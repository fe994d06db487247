// How much the simulations and explorations do in code that a sanitizer has instrumented, which takes thirty times as
// long: such a run seeks faults of memory, and leaves the protocols to the others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::sim {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsInstrumented = true;
#else
constexpr bool kIsInstrumented = false;
#endif

// An exploration ends without a word when it has seen as many.
constexpr size_t kMostStates = kIsInstrumented ? 10'000 : SIZE_MAX;

}  // namespace gradwire::sim
