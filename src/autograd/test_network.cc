#include "autograd/test_network.h"

#include <atomic>
#include <thread>

namespace gradwire::autograd {
namespace {

// As tensors arrive: other objects, other memory, leaves that require grad where the sent ones did.
TensorList Travel(const TensorList& tensors) {
  TensorList result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.defined() ? tensor.detach().clone().set_requires_grad(tensor.requires_grad()) : tensor);
  }
  return result;
}

class TestIncomingCall final : public IncomingCall {
 public:
  TestIncomingCall(const rpc::Peer& from, std::string function, Payload args, Completion done, Executor& caller)
      : caller_{from.name, from.id.rank},
        function_(std::move(function)),
        args_(std::move(args)),
        done_(std::move(done)),
        caller_executor_(caller) {}
  ~TestIncomingCall() override {
    if (done_) Answer(Failure{.code = ErrorCode::kInternal, .text = function_ + " was not answered"});
  }

  const WorkerInfo& caller() const override { return caller_; }
  const std::string& function() const override { return function_; }
  Payload& args() override { return args_; }
  bool cancelled() const override { return false; }
  bool keeps_result() const override { return false; }
  void Reply(Payload value) override { Answer(std::move(value)); }
  void Fail(Failure failure) override { Answer(std::move(failure)); }
  std::shared_ptr<void> Enter() override { return nullptr; }
  void Resume(UniqueFunction<void()> answer) override { answer(); }
  void Post(UniqueFunction<void()> answer) override { answer(); }

 private:
  void Answer(Outcome outcome) {
    Completion done = std::move(done_);
    done_ = nullptr;
    args_ = {};
    if (!done) return;
    caller_executor_.Post(
        [done = std::move(done), outcome = std::move(outcome)]() mutable { done(std::move(outcome)); });
  }

  WorkerInfo caller_;
  std::string function_;
  Payload args_;
  Completion done_;
  Executor& caller_executor_;
};

}  // namespace

class TestCalls final : public Calls {
 public:
  TestCalls(TestNetwork& network, size_t rank) : network_(network), rank_(rank) {}
  const rpc::Peer& self() const override { return network_.nodes_[rank_]->self; }
  Executor& executor() override { return *network_.nodes_[rank_]->pool; }
  void Send(WorkerId to, const std::string& function, Payload args, Completion done) override {
    network_.Deliver(rank_, to, function, std::move(args), std::move(done));
  }
  std::optional<WorkerId> Ranked(uint32_t rank) const override { return TestNetwork::IdOf(rank); }
  void Notify(WorkerId to, const std::string& function, Payload args) override {
    network_.Deliver(rank_, to, function, std::move(args), nullptr);
  }

 private:
  TestNetwork& network_;
  const size_t rank_;
};

TestNetwork::TestNetwork(size_t workers) {
  for (size_t rank = 0; rank < workers; ++rank) {
    auto node = std::make_unique<Node>();
    node->self = {IdOf(rank), "w" + std::to_string(rank)};
    node->pool = std::make_unique<ThreadPool>(ThreadPool::Options{.max_running = 4});
    node->protocol = std::make_shared<Protocol>(std::make_shared<AutogradInterceptor>(node->self));
    node->protocol->Register(node->functions);
    node->protocol->Attach(std::make_shared<TestCalls>(*this, rank));
    nodes_.push_back(std::move(node));
  }
}

TestNetwork::~TestNetwork() {
  Settle();
  for (const auto& node : nodes_) node->pool->Stop();
}

void TestNetwork::Deliver(size_t from, WorkerId to, const std::string& function, Payload args, Completion done) {
  Node& target = *nodes_[to.rank];
  Executor& answers = *nodes_[from]->pool;
  std::optional<ErrorCode> failure;
  {
    const std::lock_guard lock(mutex_);
    ++messages_;
    if (const auto it = failing_.find({function, to.rank}); it != failing_.end()) failure = it->second;
    if (dead_.count(to.rank) || dead_.count(from)) failure = ErrorCode::kDisconnected;
  }
  args.tensors = Travel(args.tensors);
  auto call =
      std::make_shared<TestIncomingCall>(nodes_[from]->self, function, std::move(args), std::move(done), answers);
  if (failure) return call->Fail({.code = *failure, .text = "worker '" + target.self.name + "' has left"});
  const auto entry = target.functions.Find(function);
  const auto run = [entry](const std::shared_ptr<IncomingCall>& call) {
    try {
      entry->handler(call);
    } catch (const Error& error) {
      call->Fail(error.failure());
    }
  };
  const std::lock_guard lock(target.inbox_mutex);
  target.inbox.emplace_back(
      [&target, entry, call, run] { entry->is_ordered ? run(call) : target.pool->Post([call, run] { run(call); }); });
  if (!std::exchange(target.draining, true)) target.pool->Post([&target] { Drain(target); });
}

void TestNetwork::Drain(Node& node) {
  while (true) {
    Task task;
    {
      const std::lock_guard lock(node.inbox_mutex);
      node.draining = !node.inbox.empty();
      if (!node.draining) return;
      task = std::move(node.inbox.front());
      node.inbox.pop_front();
    }
    task();
  }
}

TensorList TestNetwork::Call(size_t from, size_t to, const TensorList& args, const UserFunction& function) {
  AutogradInterceptor& caller = at(from).interceptor();
  AutogradInterceptor& callee = at(to).interceptor();
  CallState sent_state, served_state;
  const rpc::Peer& caller_peer = nodes_[from]->self;
  const rpc::Peer& callee_peer = nodes_[to]->self;
  wire::Request request{.call_id = 1, .function = "user"};
  request.args.tensors = args;
  rpc::OutgoingCall outgoing{callee_peer, request, sent_state};
  caller.OnSend(outgoing);

  wire::Request arrived{.call_id = 1, .function = "user", .extensions = request.extensions};
  arrived.args.tensors = Travel(request.args.tensors);
  rpc::ServedCall served{caller_peer, arrived, served_state};
  callee.OnHeader(served);
  wire::Reply reply{.call_id = 1};
  {
    const auto scope = callee.OnDispatch(served);
    reply.value.tensors = function(arrived.args.tensors);
  }
  callee.OnReply(served, reply);

  wire::Reply returned{.call_id = 1, .extensions = reply.extensions};
  returned.value.tensors = Travel(reply.value.tensors);
  caller.OnReplyReceived(returned, sent_state);
  return returned.value.tensors;
}

void TestNetwork::Kill(size_t rank) {
  const std::lock_guard lock(mutex_);
  dead_.insert(rank);
}

void TestNetwork::FailCallsOf(const std::string& function, size_t to, ErrorCode code) {
  const std::lock_guard lock(mutex_);
  failing_[{function, to}] = code;
}

size_t TestNetwork::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

void TestNetwork::Settle() {
  // Quiet when nothing is queued, active or sent between two looks at all workers.
  for (size_t before = 0, quiet = 0; quiet < 3;) {
    bool idle = true;
    for (const auto& node : nodes_) idle = idle && node->pool->queued() == 0 && node->pool->active() == 0;
    const size_t now = messages();
    quiet = idle && now == before ? quiet + 1 : 0;
    before = now;
    std::this_thread::yield();
  }
}

}  // namespace gradwire::autograd
