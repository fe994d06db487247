// Send and receive nodes: where gradients enter and leave the graph of one worker (docs/autograd.md).
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace gradwire::autograd {

// The one place that knows how libtorch counts references to nodes: 2.13 uses intrusive pointers.
using Node = torch::autograd::Node;
using NodePtr = c10::intrusive_ptr<Node>;
using TensorList = std::vector<at::Tensor>;

// Its inputs are the tensors that one message carried away: their gradients arrive here.
class SendBackward final : public Node {
 public:
  // `sent` all require grad.
  explicit SendBackward(const TensorList& sent);
  TensorList apply(TensorList&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "torch::distributed::autograd::SendRpcBackward"; }
};

// Its outputs are the tensors that one message brought: their gradients go to the worker that sent it.
class RecvBackward final : public Node {
 public:
  RecvBackward(WorkerId peer, MessageId message) : peer_(peer), message_(message) {}

  // Makes `received`, leaves that require grad, outputs of a new node.
  static c10::intrusive_ptr<RecvBackward> Attach(const TensorList& received, WorkerId peer, MessageId message);

  WorkerId peer() const { return peer_; }
  MessageId message() const { return message_; }

  // Runs the node as part of a pass: the gradients, undefined ones where a tensor got none.
  TensorList Collect(TensorList&& gradients);

  // Outside of Collect() it throws Error(kInvalid): an ordinary backward() cannot go on to another worker.
  TensorList apply(TensorList&& gradients) override;
  std::string name() const override { return "torch::distributed::autograd::RecvRpcBackward"; }

 private:
  const WorkerId peer_;
  const MessageId message_;
};

using SendPtr = c10::intrusive_ptr<SendBackward>;
using RecvPtr = c10::intrusive_ptr<RecvBackward>;

// Those of `tensors` that require grad, in their order: what a node is made for, on both sides of a message.
TensorList RequiringGrad(const TensorList& tensors);

}  // namespace gradwire::autograd
