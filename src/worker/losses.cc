#include "worker/losses.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

namespace gradwire {
namespace {

constexpr size_t kMostKept = 1000;
constexpr uint64_t kLine = 0;  // no peer's: programs' code must not fill the line of the library

}  // namespace

void Losses::Listen(Callback callback) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  listeners_.push_back(std::make_shared<Listener>(Listener{std::move(callback), first_}));
  TellLocked();
}

void Losses::Add(const WorkerInfo& worker, const Failure& reason) {
  if (reason.type_name == kHasLeft) return;
  std::lock_guard lock(mutex_);
  if (closed_) return;
  losses_.push_back({worker, reason});
  if (losses_.size() > kMostKept) {
    losses_.pop_front();
    ++first_;
  }
  TellLocked();
}

void Losses::TellLocked() {
  if (listeners_.empty() || losses_.empty() || std::exchange(telling_, true)) return;
  executor_->PostHandler(kLine, [self = shared_from_this()] { self->Tell(); });
}

void Losses::Tell() {
  for (;;) {
    std::shared_ptr<Listener> listener;
    Loss loss;
    {
      std::lock_guard lock(mutex_);
      const uint64_t end = first_ + losses_.size();
      const auto late = std::find_if(listeners_.begin(), listeners_.end(),
                                     [&](const std::shared_ptr<Listener>& each) { return each->next < end; });
      if (late == listeners_.end()) {
        telling_ = false;
        return;
      }
      listener = *late;
      const uint64_t number = std::max(listener->next, first_);
      loss = losses_[number - first_];
      listener->next = number + 1;
    }
    try {
      listener->callback(loss.worker, loss.reason);
    } catch (const std::exception& error) {
      Log(LogLevel::kError, "a callback of on_worker_lost failed for '" + loss.worker.name + "': " + error.what());
    }
  }
}

void Losses::Close() {
  std::vector<std::shared_ptr<Listener>> ended;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ended.swap(listeners_);
  }
}

}  // namespace gradwire
