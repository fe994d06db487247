// The control messages of autograd: names and arguments (docs/autograd.md, "On the wire").
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/nodes.h"
#include "autograd/pass_table.h"
#include "gradwire/value.h"

namespace gradwire::autograd {

inline const std::string kMark = "autograd.mark";            // MarkArgs -> workers reached, as packed ids
inline const std::string kGradients = "autograd.gradients";  // GradientsArgs -> nothing, when received
inline const std::string kRun = "autograd.run";              // PassArgs -> nothing, when this worker's part is done
inline const std::string kCommit = "autograd.commit";        // PassArgs -> nothing
inline const std::string kAbort = "autograd.abort";          // AbortArgs -> nothing, when all below have aborted
inline const std::string kRelease = "autograd.release";      // the context id; no answer
inline const std::string kAdopt = "autograd.adopt";          // the context id, the packed id of who sends; no answer

// Context, starter, number of the pass.
using PassArgs = std::tuple<int64_t, int64_t, int64_t>;
// Context, packed id of the worker that has it.
using AdoptArgs = std::tuple<int64_t, int64_t>;
// Creator and number of the message, and which of its tensors take part.
using MarkingArgs = std::tuple<int64_t, int64_t, std::vector<int64_t>>;
// Pass, whether the graph is retained, what takes part.
using MarkArgs = std::tuple<PassArgs, bool, std::vector<MarkingArgs>>;
// Pass, message, gradients of its tensors: undefined ones where a tensor got none.
using GradientsArgs = std::tuple<PassArgs, std::pair<int64_t, int64_t>, std::vector<at::Tensor>>;
// Pass, and why: code, text, worker.
using AbortArgs = std::tuple<PassArgs, int64_t, std::string, std::string>;

inline PassArgs ArgsOf(const PassKey& pass) {
  return {pass.context, static_cast<int64_t>(pass.id.starter.packed()), static_cast<int64_t>(pass.id.number)};
}
inline PassKey PassOf(const PassArgs& args) {
  return {std::get<0>(args),
          {WorkerId::FromPacked(static_cast<uint64_t>(std::get<1>(args))), static_cast<uint64_t>(std::get<2>(args))}};
}
inline std::pair<int64_t, int64_t> ArgsOf(const MessageId& message) {
  return {static_cast<int64_t>(message.creator.packed()), static_cast<int64_t>(message.number)};
}
inline MessageId MessageIdOf(int64_t creator, int64_t number) {
  return {WorkerId::FromPacked(static_cast<uint64_t>(creator)), static_cast<uint64_t>(number)};
}
inline MarkingArgs ArgsOf(const Marking& marking) {
  const auto [creator, number] = ArgsOf(marking.message);
  return {creator, number, {marking.tensors.begin(), marking.tensors.end()}};
}
// An index that no message has is refused by the walk.
inline Marking MarkingOf(const MarkingArgs& args) {
  Marking marking{MessageIdOf(std::get<0>(args), std::get<1>(args)), {}};
  for (const int64_t index : std::get<2>(args)) {
    marking.tensors.push_back(index < 0 || index > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(index));
  }
  return marking;
}

}  // namespace gradwire::autograd
