#include "rref/references.h"

#include <utility>

#include "rref/handle.h"
#include "rref/shell.h"

namespace gradwire::rref {
namespace {

constexpr auto kSlot = static_cast<size_t>(rpc::StateSlot::kReferences);

// What a creating call keeps in its state: the handle that it is for.
std::shared_ptr<Handle> CreatedBy(const CallState& state) { return std::static_pointer_cast<Handle>(state[kSlot]); }

class Hooks final : public rpc::Interceptor {
 public:
  explicit Hooks(std::shared_ptr<References::Impl> shell) : shell_(std::move(shell)) {}

  void OnSend(rpc::OutgoingCall& call) override { CheckAll(call.request.args); }

  void OnEnqueue(rpc::OutgoingCall& call) override {
    if (call.keep_result) {
      const auto handle = CreatedBy(call.state);
      call.request.keep_as = handle->Create();
      shell_->Register(handle);  // in the send step: DropAll() comes before it or finds it
    }
    call.request.references = shell_->Share(call.request.args.references, call.to.id);
  }

  void OnEnqueueReply(const rpc::Peer& to, wire::Reply& reply) override {
    reply.references = shell_->Share(reply.value.references, to.id);
  }

  void OnHeader(rpc::ServedCall& call) override {
    const auto& keep = call.request.keep_as;
    // A call to oneself has registered its value in the send step.
    if (keep && call.from.id != shell_->self().id) {
      bool allowed = false;
      shell_->StepOwner([&](OwnerTable& table) {
        auto actions = table.Create(keep->rref, keep->fork, call.from.id);
        allowed = actions.has_value();
        return actions ? std::move(*actions) : OwnerTable::Actions{};
      });
      if (!allowed) {
        call.request.keep_as.reset();  // the end of this call must not set the value that another has made
        throw Error(ErrorCode::kInvalid, "a creation under an id that its sender may not use");
      }
    }
    call.request.args.references = shell_->Receive(call.request.references, call.from.id);
  }

  void OnReplyHeader(const rpc::Peer& from, wire::Reply& reply, CallState&) override {
    reply.value.references = shell_->Receive(reply.references, from.id);
  }

  bool OnKeep(rpc::ServedCall& call, Outcome& outcome) override {
    Result result = outcome.ok() ? Result::Of(std::make_shared<const Kept>(std::move(outcome.value())))
                                 : Result::Of(outcome.failure());
    shell_->StepOwner([&](OwnerTable& table) { return table.SetValue(call.request.keep_as->rref, std::move(result)); });
    return true;
  }

  void OnReply(rpc::ServedCall&, wire::Reply& reply) override { CheckAll(reply.value); }

  void OnReplyReceived(wire::Reply& reply, CallState& state) override {
    if (const auto handle = CreatedBy(state)) handle->OnCreated(reply.failure, true);
  }

  void OnNoReply(const Failure& failure, CallState& state) override {
    if (const auto handle = CreatedBy(state)) handle->OnCreated(failure, false);
  }

 private:
  static void CheckAll(const Payload& payload) {
    for (const auto& reference : payload.references) {
      const auto* handle = dynamic_cast<const Handle*>(reference.get());
      if (!handle) throw Error(ErrorCode::kInvalid, "an RRef that refers to nothing cannot be sent");
      handle->CheckSendable();
    }
  }

  const std::shared_ptr<References::Impl> shell_;
};

}  // namespace

References::References(rpc::Peer self, Functions& internal_functions) : impl_(std::make_shared<Impl>(std::move(self))) {
  impl_->RegisterFunctions(internal_functions);
}

References::~References() { Close({.code = ErrorCode::kInvalid, .text = "the worker has ended"}); }

std::shared_ptr<rpc::Interceptor> References::interceptor() { return std::make_shared<Hooks>(impl_); }
void References::Attach(std::shared_ptr<rpc::Rpc> rpc) { impl_->SetRpc(std::move(rpc)); }

std::shared_ptr<RRefHandle> References::Remote(const rpc::Peer& to, const std::string& function, Payload args,
                                               CallOptions options) {
  const auto rpc = impl_->rpc();
  std::shared_ptr<Handle> handle;
  if (to.id == impl_->self().id) {
    handle = std::make_shared<OwnedHandle>(impl_, "");
  } else {
    handle = std::make_shared<UserHandle>(impl_, "", to);
  }
  handle->creation_ = Future<void>(std::make_shared<detail::FutureState>(rpc->executor()));
  rpc::Call call;
  call.to = to.id;
  call.function = function;
  call.args = std::move(args);
  call.options = std::move(options);
  call.keep_result = true;
  call.short_completion = true;
  call.state[kSlot] = handle;
  rpc->Send(std::move(call), [](Outcome) {});  // the hooks tell the handle
  return handle;
}

std::shared_ptr<RRefHandle> References::Own(Payload value, std::string type_name) {
  const auto rpc = impl_->rpc();
  const RRefId rref{impl_->self().id, impl_->NextNumber()};
  impl_->StepOwner([&](OwnerTable& table) {
    table.CreateLocal(rref);
    return table.SetValue(rref, Result::Of(std::make_shared<const Kept>(std::move(value))));
  });
  auto handle = std::make_shared<OwnedHandle>(impl_, std::move(type_name), rref, false);
  impl_->Register(handle);
  return handle;
}

void References::DropAll() {
  const auto live = impl_->LiveHandles();
  const auto drop = [this, &live] {
    for (const auto& handle : live) handle->Drop();
    impl_->SendDrops();
  };
  // A message that is just being sent may share such a handle: its AddFork must not come behind the drop (rule 4).
  if (const auto rpc = impl_->rpc_or_null()) return rpc->InSendStep(drop);
  drop();
}

std::vector<std::string> References::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& held : impl_->StepOwner([](const OwnerTable& table) { return table.HeldByOthers(); })) {
    std::string line = "RRef " + ToString(held.rref) + " of worker '" + impl_->self().name + "' is still held by rank";
    for (const auto& [fork, holder] : held.forks) line += " " + std::to_string(holder.rank);
    leaks.push_back(std::move(line));
  }
  return leaks;
}

void References::OnLost(const rpc::Peer& peer, const Failure& why) { impl_->NoteLoss(peer.id, why); }

void References::OnDrained(const rpc::Peer& peer) {
  if (peer.id != impl_->self().id) impl_->Forget(peer.id);
}

void References::Close(const Failure& why) { impl_->Close(why); }

References::Counts References::counts() const {
  const OwnerTable::Counts owner = impl_->StepOwner([](const OwnerTable& table) { return table.counts(); });
  const UserTable::Counts user = impl_->StepUser([](const UserTable& table) { return table.counts(); });
  return {.owned = owner.with_forks,
          .forks = owner.forks,
          .held = user.forks,
          .creating = user.creating,
          .waiting = owner.pending + owner.waiting + user.waiting,
          .in_doubt = owner.in_doubt,
          .questions = owner.awaited + user.asked,
          .entries = owner.entries + owner.awaited + user.forks + user.asked};
}

}  // namespace gradwire::rref

namespace gradwire::detail {

std::shared_ptr<RRefHandle> ReadRRef(ValueReader& reader) {
  auto handle = std::dynamic_pointer_cast<RRefHandle>(reader.GetReference());
  if (!handle) throw Error(ErrorCode::kInvalid, "the value is no reference of this library");
  return handle;
}

}  // namespace gradwire::detail
