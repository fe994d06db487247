// GRADWIRE_RULE: a rule of a protocol's table, such as "a body is kept until it is acknowledged". Explorations switch
// one off to see that it is needed. It is a constant, but for builds with GRADWIRE_PLANTED, where a test of the whole
// library switches it off at run time: a simulation that does not notice would find nothing.
#pragma once

#ifdef GRADWIRE_PLANTED
#define GRADWIRE_RULE static inline bool
#else
#define GRADWIRE_RULE static constexpr bool
#endif
