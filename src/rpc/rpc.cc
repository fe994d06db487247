#include "rpc/rpc.h"

#include <algorithm>
#include <utility>

#include "rpc/rpc_impl.h"
#include "rpc/send_step.h"

namespace gradwire::rpc {

namespace {

Rpc::Options Checked(Rpc::Options options) {
  options.timeout = std::min(options.timeout, kLongestLimit);
  return options;
}

}  // namespace

Rpc::Impl::Impl(Options options)
    : options_(std::move(options)),
      timeout_(options_.timeout),
      budget_(std::make_shared<BulkBudget>(
          options_.max_bytes_in_flight.value_or(BulkBudget::OfMachine()),
          [executor = options_.executor](Task task) { executor->Post(std::move(task)); })) {}

Rpc::Rpc(Options options) : impl_(std::make_shared<Impl>(Checked(std::move(options)))) {}
Rpc::~Rpc() { Stop("this worker has ended"); }

std::vector<std::string> Rpc::Listen() { return impl_->Listen(); }
Members& Rpc::members() { return impl_->members_; }
void Rpc::JoinGroup() { impl_->JoinGroup(); }
void Rpc::StartWatching() { impl_->StartWatching(); }
bool Rpc::IsGone(WorkerId member) { return impl_->IsGone(member); }
size_t Rpc::sessions() const { return impl_->sessions(); }
const Peer& Rpc::self() const { return impl_->self(); }
Clock& Rpc::clock() { return impl_->clock(); }
const std::shared_ptr<Executor>& Rpc::executor() { return impl_->options_.executor; }
Functions& Rpc::functions() { return *impl_->options_.functions; }
std::chrono::milliseconds Rpc::timeout() const { return impl_->timeout_.load(); }
void Rpc::set_timeout(std::chrono::milliseconds timeout) { impl_->timeout_.store(std::min(timeout, kLongestLimit)); }
Rpc::Counts Rpc::counts() const { return impl_->counts(); }
Rpc::Work Rpc::work(size_t most) const { return impl_->WorkNow(most); }
void Rpc::Stop(const std::string& why) { impl_->Stop(why); }

void Rpc::InSendStep(UniqueFunction<void()> step) {
  const SendStepLock in(impl_->send_step_mutex_);
  step();
}

CallHandle Rpc::Send(Call call, Completion done) {
  auto pending = std::make_shared<PendingCall>();
  pending->done = std::move(done);
  pending->short_completion = call.short_completion;
  call.options.timeout = std::min(call.options.timeout, kLongestLimit);
  impl_->Send(std::move(call), pending);
  return {impl_, pending->id};
}

Outcome Rpc::SendAndWait(Call call) {
  call.options.timeout = std::min(call.options.timeout, kLongestLimit);
  return impl_->SendAndWait(std::move(call));
}

void Rpc::Notify(WorkerId to, const std::string& function, Payload args) {
  impl_->Notify(to, function, std::move(args));
}

}  // namespace gradwire::rpc
