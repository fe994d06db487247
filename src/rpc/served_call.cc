#include "rpc/served_call.h"

#include <utility>

#include "gradwire/future.h"
#include "rpc/surroundings.h"

namespace gradwire::rpc {
namespace {

// Codes that say something about this very call; others belong to calls that the handler made.
bool IsAboutThisCall(ErrorCode code) {
  return code == ErrorCode::kInvalid || code == ErrorCode::kUnknownFunction || code == ErrorCode::kPermissionDenied ||
         code == ErrorCode::kRemote || code == ErrorCode::kInternal || code == ErrorCode::kOverloaded;
}

// In a catch (...). C++ has no traceback: where it would stand is at least whose exception it is.
Failure WhyFailed(const std::string& function) {
  Failure failure = detail::CaughtFailure();
  if (failure.code == ErrorCode::kRemote && failure.traceback.empty() && !failure.type_name.empty()) {
    failure.traceback = failure.type_name + " thrown by '" + function + "'";
  }
  if (!IsAboutThisCall(failure.code)) {
    failure.type_name = "gradwire::Error " + std::string(ErrorCodeName(failure.code));
    failure.code = ErrorCode::kRemote;
  }
  return failure;
}

thread_local const IncomingCall* this_call = nullptr;

struct ThisCallScope {
  explicit ThisCallScope(const IncomingCall* call) : outer(std::exchange(this_call, call)) {}
  ~ThisCallScope() { this_call = outer; }
  ThisCallScope(const ThisCallScope&) = delete;
  const IncomingCall* const outer;
};

// What a thread has entered for a call, left in reverse order.
struct Entered {
  void Enter(Surroundings inner) { scopes.push_back(std::make_shared<Surroundings::Scope>(std::move(inner))); }
  ~Entered() {
    while (!scopes.empty()) scopes.pop_back();
  }
  std::vector<std::shared_ptr<void>> scopes;
};

}  // namespace

ServedCallImpl::ServedCallImpl(std::shared_ptr<ServedCallHost> host, std::shared_ptr<Session> session,
                               wire::Request request, std::shared_ptr<Functions::Entry> entry, bool is_internal)
    : host_(std::move(host)),
      session_(std::move(session)),
      entry_(std::move(entry)),
      is_internal_(is_internal),
      caller_{session_->peer().name, session_->peer().id.rank, session_->peer().id.incarnation},
      request_(std::move(request)) {}

ServedCallImpl::~ServedCallImpl() {
  if (answered_.load()) return;
  try {
    Answer(Failure{.code = ErrorCode::kInternal, .text = "'" + request_.function + "' was dropped without an answer"});
  } catch (const std::exception&) {
    // nobody is left to tell
  }
}

void ServedCallImpl::Header() {
  ServedCall call = view();
  for (const auto& interceptor : host_->interceptors()) interceptor->OnHeader(call);
}

std::shared_ptr<void> ServedCallImpl::Enter() {
  struct Inside {
    std::shared_ptr<ServedCallImpl> call;
    ThisCallScope scope;
    std::shared_ptr<void> surroundings;
  };
  return std::shared_ptr<Inside>(new Inside{shared_from_this(), ThisCallScope(this), EnterInterceptors()});
}

std::shared_ptr<void> ServedCallImpl::EnterInterceptors() {
  auto surroundings = std::make_shared<Entered>();
  // A thread that waits inside of its own may run this meanwhile.
  if (!Surroundings::current().empty()) surroundings->Enter({});
  ServedCall call = view();
  for (const auto& interceptor : host_->interceptors()) {
    if (auto scope = interceptor->OnDispatch(call)) surroundings->scopes.push_back(std::move(scope));
  }
  if (deadline_) surroundings->Enter(WithDeadline(*deadline_));
  return surroundings->scopes.empty() ? nullptr : surroundings;
}

void ServedCallImpl::NoteBegun() {
  if (begun_.exchange(true)) return;
  request_.lease.reset();
  if (const auto begun = session_->credit().Begin(is_bounded_)) host_->SendCredit(session_, *begun);
}

void ServedCallImpl::Run() {
  NoteBegun();
  try {
    if (!entry_) {
      throw Error(ErrorCode::kUnknownFunction,
                  "worker '" + host_->self().name + "' has no function named '" + request_.function + "'");
    }
    CheckRequired(host_->interceptors(), request_.extensions, "the call of '" + request_.function + "'");
    wire::CheckArrived(request_.args);
    const ThisCallScope scope(this);
    const std::shared_ptr<void> surroundings = EnterInterceptors();
    entry_->handler(shared_from_this());
  } catch (...) {
    Failure failure = WhyFailed(request_.function);
    if (!answered_.load()) Answer(std::move(failure));
  }
}

bool ServedCallImpl::RefuseIfLate() {
  if (cancelled()) {
    host_->OnRefused();
    Fail({.code = ErrorCode::kCancelled, .text = "'" + request_.function + "' was not started"});
  } else if (deadline_ && *deadline_ <= host_->clock().Now()) {
    host_->OnRefused();
    Fail({.code = ErrorCode::kTimedOut,
          .text = "RPC ran for more than its deadline allows: '" + request_.function + "' was not started"});
  } else {
    return false;
  }
  return true;
}

void ServedCallImpl::Cancel() {
  UniqueFunction<void()> tell;
  {
    std::lock_guard lock(mutex_);
    cancelled_.store(true);
    tell = std::exchange(tell_, nullptr);
  }
  if (tell) host_->Post(std::move(tell));
}

void ServedCallImpl::Abandon() {
  if (begun_.load() && !keeps_result()) Cancel();
}

void ServedCallImpl::OnCancelled(UniqueFunction<void()> tell) {
  if (session_->ended_because()) Abandon();
  {
    std::lock_guard lock(mutex_);
    if (answered_.load()) return;
    if (!cancelled()) {
      tell_ = std::move(tell);
      return;
    }
  }
  tell();
}

void ServedCallImpl::Resume(UniqueFunction<void()> answer) {
  try {
    const std::shared_ptr<void> surroundings = Enter();
    answer();
  } catch (...) {
    Failure failure = WhyFailed(request_.function);
    if (!answered_.load()) Answer(std::move(failure));
  }
}

void ServedCallImpl::Post(UniqueFunction<void()> answer) {
  host_->Post([self = shared_from_this(), answer = std::move(answer)]() mutable { self->Resume(std::move(answer)); });
}

void ServedCallImpl::ShowAs(std::string name) {
  std::lock_guard lock(mutex_);
  shown_as_ = std::move(name);
}

std::string ServedCallImpl::shown_as() const {
  std::lock_guard lock(mutex_);
  return shown_as_.empty() ? request_.function : shown_as_;
}

void ServedCallImpl::Reply(Payload value) { Answer(std::move(value)); }

void ServedCallImpl::Fail(Failure failure) { Answer(std::move(failure)); }

Failure ServedCallImpl::Describe(Failure failure) const {
  if (failure.worker.empty()) failure.worker = host_->self().name;
  return failure;
}

void ServedCallImpl::Answer(Outcome outcome) {
  if (answered_.exchange(true)) {
    throw Error(ErrorCode::kInvalid, "the call of '" + request_.function + "' was answered twice");
  }
  NoteBegun();
  {
    std::unique_lock lock(mutex_);
    const auto unneeded = std::exchange(tell_, nullptr);
    lock.unlock();  // it is destroyed without it
  }
  try {
    Finish(std::move(outcome));
  } catch (...) {
    host_->OnServed(*this);
    throw;
  }
  host_->OnServed(*this);
}

void ServedCallImpl::Finish(Outcome outcome) {
  if (cancelled() && outcome.ok()) {
    outcome = Failure{.code = ErrorCode::kCancelled, .text = "'" + request_.function + "' was cancelled"};
  }
  if (!outcome.ok()) outcome = Describe(outcome.failure());
  wire::Reply reply;
  reply.call_id = request_.call_id;
  ServedCall call = view();
  bool kept = false;
  if (request_.keep_as) {
    if (!outcome.ok()) reply.failure = outcome.failure();
    for (const auto& interceptor : host_->interceptors()) kept = kept || interceptor->OnKeep(call, outcome);
    if (!kept) reply.failure = Describe({.code = ErrorCode::kInternal, .text = "nothing here keeps results"});
  } else if (request_.call_id != 0) {
    try {
      if (outcome.ok() && outcome.value().local) outcome = outcome.value().local->Encode();
    } catch (...) {
      outcome = Describe(WhyFailed(request_.function));
    }
    if (outcome.ok()) {
      reply.value = std::move(outcome.value());
    } else {
      reply.failure = outcome.failure();
    }
  }
  request_.args = Payload{};  // its handles may drop before the reply says that the call is over
  if (request_.call_id == 0) return;
  if (!reply.failure && !kept) {
    const auto& all = host_->interceptors();
    try {
      for (auto it = all.rbegin(); it != all.rend(); ++it) (*it)->OnReply(call, reply);
    } catch (...) {  // of a reference that cannot be shared: an answer all the same (C1)
      reply = wire::Reply{.call_id = request_.call_id, .failure = Describe(WhyFailed(request_.function))};
    }
  }
  host_->SendReply(session_, std::move(reply));
}

}  // namespace gradwire::rpc

bool gradwire::this_call_cancelled() { return rpc::this_call && rpc::this_call->cancelled(); }
