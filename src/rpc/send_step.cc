#include "rpc/send_step.h"

#include "rpc/session.h"

namespace gradwire::rpc {
namespace {

thread_local SendStep* current_step = nullptr;

}  // namespace

SendStep::SendStep(std::mutex& mutex) : lock_(mutex) { current_step = this; }

SendStep::~SendStep() {
  current_step = nullptr;
  lock_.unlock();
  for (const auto& session : to_flush_) session->Flush();
}

bool SendStep::on_this_thread() { return current_step != nullptr; }

bool SendStep::Defers(const std::shared_ptr<Session>& session) {
  if (!current_step) return false;
  auto& waiting = current_step->to_flush_;
  if (waiting.empty() || waiting.back() != session) waiting.push_back(session);
  return true;
}

}  // namespace gradwire::rpc
