#include "gradwire/function.h"

#include <map>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "rpc/function_entry.h"

namespace gradwire {

struct Functions::State {
  struct Family {
    Handler handler;
    FunctionOptions options;
  };
  // Each name of a family has its own entry, since each may lose its short flag. Names come from peers: bounded.
  static constexpr size_t kMaxFamilyEntries = 4096;

  mutable std::shared_mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries;
  std::unordered_map<std::string, std::shared_ptr<Entry>> family_entries;
  std::map<std::string, Family> families;
};

Functions::Functions() : state_(std::make_unique<State>()) {}
Functions::~Functions() = default;

// What a handler holds is a program's: it is destroyed after unlock.

void Functions::AddHandler(const std::string& name, Handler handler, FunctionOptions options) {
  if (name.empty()) throw Error(ErrorCode::kInvalid, "a function needs a name to be called by");
  const auto entry = std::make_shared<Entry>(std::move(handler), std::move(options));
  std::unique_lock lock(state_->mutex);
  if (!state_->entries.try_emplace(name, entry).second) {
    throw Error(ErrorCode::kInvalid, "a function named '" + name + "' is registered already");
  }
}

bool Functions::Remove(const std::string& name) {
  std::shared_ptr<Entry> removed;
  std::unique_lock lock(state_->mutex);
  const auto it = state_->entries.find(name);
  if (it == state_->entries.end()) return false;
  removed = std::move(it->second);
  state_->entries.erase(it);
  return true;
}

void Functions::AddFamily(const std::string& prefix, Handler handler, FunctionOptions options) {
  State::Family family{std::move(handler), std::move(options)};
  std::unique_lock lock(state_->mutex);
  if (!state_->families.try_emplace(prefix, std::move(family)).second) {  // moved from only when it was added
    throw Error(ErrorCode::kInvalid, "a family of functions with prefix '" + prefix + "' is registered already");
  }
}

std::shared_ptr<Functions::Entry> Functions::Find(const std::string& name) const {
  {
    std::shared_lock lock(state_->mutex);
    if (auto it = state_->entries.find(name); it != state_->entries.end()) return it->second;
    if (auto it = state_->family_entries.find(name); it != state_->family_entries.end()) return it->second;
  }
  std::unique_lock lock(state_->mutex);
  for (const auto& [prefix, family] : state_->families) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    auto entry = std::make_shared<Entry>(family.handler, family.options);
    if (state_->family_entries.size() < State::kMaxFamilyEntries) {
      return state_->family_entries.emplace(name, std::move(entry)).first->second;
    }
    return entry;
  }
  return nullptr;
}

namespace detail {

Arguments::Arguments(IncomingCall& call, size_t wanted) : function_(call.function()), reader_(call.args()) {
  size_t found = 0;
  try {
    found = reader_.BeginSequence();
  } catch (const Error& error) {
    RethrowAbout("the arguments of '" + function_ + "'", error);
  }
  if (found == wanted) return;
  throw Error(ErrorCode::kInvalid, "'" + function_ + "' takes " + std::to_string(wanted) +
                                       (wanted == 1 ? " argument" : " arguments") + ", got " + std::to_string(found));
}

}  // namespace detail
}  // namespace gradwire
