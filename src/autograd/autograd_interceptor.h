// AutogradInterceptor: records what calls carry, so that gradients can go the same way back.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "autograd/context_table.h"
#include "autograd/current_context.h"
#include "autograd/extension.h"
#include "autograd/nodes.h"
#include "rpc/interceptor.h"

namespace gradwire::autograd {

// Thread-safe. A call made while a context is current carries it. Where tensors that require grad travel with the call
// or its reply, the sender gets a send node over them and the receiver a receive node under one message id. Autograd's
// own control messages carry nothing.
class AutogradInterceptor final : public rpc::Interceptor, public std::enable_shared_from_this<AutogradInterceptor> {
 public:
  explicit AutogradInterceptor(const rpc::Peer& self) : self_(self), table_(self.id) {}

  // Tells a worker that a context was released while a call in it was under way there (A7): its release may have come
  // before the call. Once, before the first call.
  using LateRelease = std::function<void(WorkerId, ContextId)>;
  void set_late_release(LateRelease late_release) { late_release_ = std::move(late_release); }

  const rpc::Peer& self() const { return self_; }
  ContextTable& table() { return table_; }
  const CurrentContext& current() const { return current_; }

  void OnSend(rpc::OutgoingCall& call) override;
  void OnHeader(rpc::ServedCall& call) override;
  std::shared_ptr<void> OnDispatch(rpc::ServedCall& call) override;
  void OnReply(rpc::ServedCall& call, wire::Reply& reply) override;
  void OnReplyReceived(wire::Reply& reply, CallState& state) override;

 private:
  struct SentCall;
  struct EnteredCall;

  // A send node over those of `tensors` that require grad, and its extension; nothing recorded when there are none.
  void RecordSend(ContextState& context, const TensorList& tensors, ContextExtension& extension);

  // Of messages outside of every context.
  void SayWhatIsCut(const TensorList& tensors, std::vector<wire::Extension>& extensions) const;
  static void NoteWhatIsCut(const TensorList& tensors, std::vector<wire::Extension>& extensions);

  const rpc::Peer self_;
  ContextTable table_;
  CurrentContext current_;
  LateRelease late_release_;
  std::atomic<uint64_t> next_message_{0};
};

// Every function name of autograd begins with it.
inline constexpr std::string_view kFunctionPrefix = "autograd.";

}  // namespace gradwire::autograd
