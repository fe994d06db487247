#include "autograd/current_context.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace gradwire::autograd {
namespace {

std::atomic<uint64_t> next_owner{0};

// By owner; as long as the workers that have something current here, one as a rule.
thread_local std::vector<std::pair<uint64_t, std::weak_ptr<ContextState>>> current;

auto EntryOf(uint64_t owner) {
  return std::find_if(current.begin(), current.end(), [owner](const auto& entry) { return entry.first == owner; });
}

}  // namespace

CurrentContext::CurrentContext() : owner_(next_owner.fetch_add(1)) {}

std::shared_ptr<ContextState> CurrentContext::get() const {
  const auto it = EntryOf(owner_);
  if (it == current.end()) return nullptr;
  std::shared_ptr<ContextState> context = it->second.lock();
  return context && !context->closed() ? context : nullptr;
}

std::weak_ptr<ContextState> CurrentContext::Set(std::weak_ptr<ContextState> context) const {
  auto it = EntryOf(owner_);
  const bool nothing = context.expired();
  if (it == current.end()) {
    if (!nothing) current.emplace_back(owner_, std::move(context));
    return {};
  }
  std::weak_ptr<ContextState> before = std::exchange(it->second, std::move(context));
  if (nothing) current.erase(it);
  return before;
}

}  // namespace gradwire::autograd
