// The extension field with which calls and replies carry a context (docs/autograd.md, "On the wire").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "wire/call.h"

namespace gradwire::autograd {

struct ContextExtension {
  static constexpr uint16_t kTag = 1;  // optional: a peer without autograd runs the call all the same

  ContextId context = 0;
  // The caller's gradient mode is off: the call runs in the context, but nothing of it is recorded, result included.
  bool no_grad = false;
  // The pair of nodes, when tensors that require grad travel, and how many do.
  std::optional<MessageId> message;
  uint32_t tensor_count = 0;
  // Of a message outside of every context: which of its tensors that require grad have a history at the sender, whose
  // packed id stands for the context. Without the others.
  std::vector<uint32_t> cut;
};

wire::Extension Encode(const ContextExtension& extension);

// Nothing when `extensions` has none. Throws Error(kInvalid) for bad bytes.
std::optional<ContextExtension> FindContextExtension(const std::vector<wire::Extension>& extensions);

}  // namespace gradwire::autograd
