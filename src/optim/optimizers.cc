#include "optim/optimizers.h"

#include <memory>
#include <string>
#include <tuple>

#include "gradwire/rref.h"
#include "optim/local_optimizer.h"

namespace gradwire::optim {
namespace {

using CreateArgs = std::tuple<std::string, Options, std::vector<RRef<at::Tensor>>>;
using StepArgs = std::tuple<RRef<at::Tensor>, ContextId>;

void Create(const std::shared_ptr<IncomingCall>& call) {
  const auto [name, options, references] = DecodeValue<CreateArgs>(call->args());
  std::vector<at::Tensor> parameters;
  for (const auto& reference : references) parameters.push_back(reference.local_value());
  Payload kept;
  kept.local = std::make_shared<LocalOptimizer>(name, std::move(parameters), options);
  call->Reply(std::move(kept));
}

void Step(const std::shared_ptr<IncomingCall>& call, const Gradients& gradients) {
  const auto [reference, context_id] = DecodeValue<StepArgs>(call->args());
  Outcome value = reference.handle()->LocalValue({});
  const auto optimizer = std::dynamic_pointer_cast<const LocalOptimizer>(value.value().local);
  if (!optimizer) throw Error(ErrorCode::kInvalid, "optim.step was given a reference to something else");
  optimizer->Step(gradients(context_id));
  call->Reply(EncodeValue(true));
}

}  // namespace

void RegisterFunctions(Functions& functions, Gradients gradients) {
  functions.AddHandler("optim.create", Create);
  functions.AddHandler("optim.step", [gradients = std::move(gradients)](const std::shared_ptr<IncomingCall>& call) {
    Step(call, gradients);
  });
}

}  // namespace gradwire::optim
