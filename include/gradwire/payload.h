// Payload: the arguments or the result of one call, in the form in which it travels.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace gradwire {

struct Payload;

// A handle of a remote reference, as the layers below references see it: something to hold, and to let go.
class Reference {
 public:
  virtual ~Reference() = default;
};

// A value that never leaves its process as it is, such as a Python object. Its destructor may run on any pool thread.
class LocalObject {
 public:
  virtual ~LocalObject() = default;

  // The same value in a form that travels. May take the GIL and run a user's code: not under a role. Throws Error.
  virtual Payload Encode() const = 0;
};

// `bytes` name tensors and references by their index in the tables. A payload with `local` set has empty bytes and
// tables until somebody needs them.
struct Payload {
  std::string bytes;
  std::vector<at::Tensor> tensors;
  std::vector<std::shared_ptr<Reference>> references;
  std::shared_ptr<const LocalObject> local;
};

}  // namespace gradwire
