#include "transport/inproc/inproc_listener.h"

#include <utility>

#include "transport/inproc/inproc_connect.h"

namespace gradwire::transport {
namespace {

constexpr std::chrono::seconds kStopLimit{2};

// Sets an event at the end of its life: a task that the executor drops must not be waited for.
class SetAtEnd {
 public:
  explicit SetAtEnd(std::shared_ptr<Event> event) : event_(std::move(event)) {}
  SetAtEnd(SetAtEnd&&) = default;
  ~SetAtEnd() {
    if (event_) event_->Set();
  }

 private:
  std::shared_ptr<Event> event_;
};

}  // namespace

std::shared_ptr<InprocEnd> InprocListener::MakeEnd(const std::string& description) {
  auto end = std::make_shared<InprocEnd>(executor_, description);
  std::lock_guard lock(mutex_);
  if (stopped_) return nullptr;
  std::erase_if(ends_, [](const auto& weak) { return weak.expired(); });
  ends_.push_back(end);
  return end;
}

bool InprocListener::PostCallback(Task task) {
  auto done = std::make_shared<Event>();
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    std::erase_if(callbacks_, [](const auto& event) { return event->is_set(); });
    callbacks_.push_back(done);
  }
  executor_->Post([end = SetAtEnd(std::move(done)), task = std::move(task)]() mutable { task(); });
  return true;
}

void InprocListener::SetAccept(Transport::AcceptCallback accept) {
  std::lock_guard lock(mutex_);
  accept_ = std::move(accept);
}

void InprocListener::Accept(std::shared_ptr<InprocEnd> end) {
  Transport::AcceptCallback accept;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;  // the end goes, and the other one learns of it
    accept = accept_;
  }
  accept(std::move(end));
}

bool InprocListener::Keep(const std::shared_ptr<InprocConnect>& attempt) {
  std::lock_guard lock(mutex_);
  if (!stopped_) attempts_.emplace(attempt.get(), attempt);
  return !stopped_;
}

void InprocListener::Forget(const InprocConnect& attempt) {
  std::shared_ptr<InprocConnect> dropped;  // after unlock
  std::lock_guard lock(mutex_);
  auto it = attempts_.find(&attempt);
  if (it == attempts_.end()) return;
  dropped = std::move(it->second);
  attempts_.erase(it);
}

void InprocListener::Stop() {
  std::vector<std::shared_ptr<Event>> callbacks;
  std::vector<std::weak_ptr<InprocEnd>> ends;
  decltype(attempts_) attempts;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    attempts.swap(attempts_);
    callbacks.swap(callbacks_);
    ends.swap(ends_);
  }
  for (const auto& [raw, attempt] : attempts) attempt->Fail(ErrorCode::kUnreachable, "this side has stopped");
  // Bounded: handlers that never return may fill the executor. It runs what is left, or drops it, when it ends.
  const auto await = [this](Event& event) { executor_->Await(event, kStopLimit); };
  for (const auto& done : callbacks) await(*done);
  for (const auto& weak : ends) {
    auto end = weak.lock();
    if (!end) continue;
    end->Close({.code = ErrorCode::kDisconnected, .text = "this side has stopped"});
    await(end->ended());
  }
}

}  // namespace gradwire::transport
