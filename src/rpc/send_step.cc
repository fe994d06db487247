#include "rpc/send_step.h"

#include "rpc/session.h"

namespace gradwire::rpc {
namespace {

thread_local SendStepLock* current_step = nullptr;

}  // namespace

SendStepLock::SendStepLock(std::mutex& mutex) : lock_(mutex) { current_step = this; }

SendStepLock::~SendStepLock() {
  current_step = nullptr;
  lock_.unlock();
  for (const auto& session : to_flush_) session->Flush();
}

bool SendStepLock::on_this_thread() { return current_step != nullptr; }

bool SendStepLock::Defers(const std::shared_ptr<Session>& session) {
  if (!current_step) return false;
  auto& waiting = current_step->to_flush_;
  if (waiting.empty() || waiting.back() != session) waiting.push_back(session);
  return true;
}

}  // namespace gradwire::rpc
