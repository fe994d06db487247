// Canonical bytes of the tables' states: two tables are in the same state exactly when their bytes are equal.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace gradwire::rref {

// Seven bits a byte, lowest first, so that the small numbers of explored states take one byte.
inline void AppendNumber(std::string& out, uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

inline void Append(std::string& out, const WorkerId& id) {
  AppendNumber(out, id.rank);
  AppendNumber(out, id.incarnation);
}

template <class Tag>
void Append(std::string& out, const GlobalId<Tag>& id) {
  Append(out, id.creator);
  AppendNumber(out, id.number);
}

}  // namespace gradwire::rref
