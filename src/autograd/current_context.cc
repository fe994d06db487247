#include "autograd/current_context.h"

#include <atomic>

namespace gradwire::autograd {
namespace {
std::atomic<uint64_t> next_owner{0};
}

CurrentContext::CurrentContext() : owner_(next_owner.fetch_add(1)) {}

std::shared_ptr<ContextState> CurrentContext::get() const {
  auto context = std::static_pointer_cast<ContextState>(rpc::CurrentThing(owner_));
  return context && !context->closed() ? context : nullptr;
}

Surroundings CurrentContext::With(const std::shared_ptr<ContextState>& context) const {
  return rpc::WithThing(owner_, context);
}

}  // namespace gradwire::autograd
