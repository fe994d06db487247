// The control messages of autograd: names and arguments (docs/autograd.md, "On the wire").
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/nodes.h"
#include "autograd/participant.h"
#include "gradwire/value.h"

namespace gradwire::autograd {

inline const std::string kMark = "autograd.mark";            // MarkArgs -> workers reached, as packed ids
inline const std::string kGradients = "autograd.gradients";  // GradientsArgs -> nothing, when received
inline const std::string kRun = "autograd.run";              // PassArgs -> nothing, when this worker's part is done
inline const std::string kCommit = "autograd.commit";        // PassArgs -> nothing
inline const std::string kAbort = "autograd.abort";          // PassArgs -> nothing, when all below have aborted
inline const std::string kRelease = "autograd.release";      // the context id; no answer

// Context, starter, number of the pass.
using PassArgs = std::tuple<int64_t, int64_t, int64_t>;
// Pass, whether the graph is retained, messages as (creator, number).
using MarkArgs = std::tuple<PassArgs, bool, std::vector<std::pair<int64_t, int64_t>>>;
// Pass, message, gradients of its tensors.
using GradientsArgs = std::tuple<PassArgs, std::pair<int64_t, int64_t>, std::vector<at::Tensor>>;

inline PassArgs ArgsOf(ContextId context, const PassId& id) {
  return {context, static_cast<int64_t>(id.starter.packed()), static_cast<int64_t>(id.number)};
}
inline PassId PassIdOf(const PassArgs& args) {
  return {WorkerId::FromPacked(static_cast<uint64_t>(std::get<1>(args))), static_cast<uint64_t>(std::get<2>(args))};
}
inline std::pair<int64_t, int64_t> ArgsOf(const MessageId& message) {
  return {static_cast<int64_t>(message.creator.packed()), static_cast<int64_t>(message.number)};
}
inline MessageId MessageIdOf(const std::pair<int64_t, int64_t>& args) {
  return {WorkerId::FromPacked(static_cast<uint64_t>(args.first)), static_cast<uint64_t>(args.second)};
}

}  // namespace gradwire::autograd
