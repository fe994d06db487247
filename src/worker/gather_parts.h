// What travels of a gathering: which one it is, the part of one worker, and the parts of all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "gradwire/payload.h"
#include "gradwire/value.h"

namespace gradwire {

using GatherParts = std::map<std::string, Payload>;  // by worker

// Names and ids of those that gather, by name, and how often the same ones have done so before.
using GatherKey = std::pair<std::vector<std::pair<std::string, WorkerId>>, int64_t>;

// A key is two values, a part one. Reading throws Error(kInvalid) for what is malformed.
void PutGatherKey(ValueWriter& writer, const GatherKey& key);
GatherKey GetGatherKey(ValueReader& reader);
void PutGatherPart(ValueWriter& writer, const std::string& name, const Payload& part);
std::pair<std::string, Payload> GetGatherPart(ValueReader& reader);

Payload EncodeGatherParts(const GatherParts& parts);
GatherParts DecodeGatherParts(const Payload& payload);

}  // namespace gradwire
