// Worker: builds the layers in order and stops them in reverse. The one place that knows all of them.
#include "gradwire/worker.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/loop.h"
#include "base/thread_pool.h"
#include "gradwire/c10d_store.h"
#include "gradwire/wait_hook.h"
#include "transport/inproc/inproc_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "worker/layers.h"
#include "worker/listen_host.h"
#include "worker/losses.h"
#include "worker/open_group.h"
#include "worker/parts.h"
#include "worker/rendezvous.h"

namespace gradwire {
namespace {

using std::chrono::milliseconds;

int FromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  char* end = nullptr;
  const long value = text ? std::strtol(text, &end, 10) : -1;
  if (!text || end == text || *end != '\0' || value < 0) {
    throw Error(ErrorCode::kInvalid, std::string("the environment variable ") + name + " must hold a number");
  }
  return static_cast<int>(value);
}

// Starting the machines of a group is not a call: whoever says nothing of limits waits longer for it.
milliseconds DefaultInitTimeout(milliseconds rpc_timeout) {
  if (rpc_timeout == WorkerOptions{}.rpc_timeout) return std::chrono::minutes(30);
  return rpc_timeout.count() == 0 ? milliseconds(0) : std::max(rpc_timeout, milliseconds(5000));
}

WorkerOptions Checked(WorkerOptions options) {
  CheckWorkerName(options.name);
  if (options.init_method.rfind("env://", 0) == 0 && !options.store) {
    if (options.rank < 0) options.rank = FromEnvironment("RANK");
    if (options.world_size < 0) options.world_size = FromEnvironment("WORLD_SIZE");
  }
  const bool is_open = options.world_size == WorkerOptions::kOpenGroup;
  if (options.world_size < 0) throw Error(ErrorCode::kInvalid, "world_size must be given: at least 1, or kOpenGroup");
  if (options.rank < 0 || (!is_open && options.rank >= options.world_size)) {
    throw Error(ErrorCode::kInvalid, "rank " + std::to_string(options.rank) + " is not in 0 .. " +
                                         std::to_string(options.world_size - 1) + ", which a group of world_size " +
                                         std::to_string(options.world_size) + " has");
  }
  if (options.num_worker_threads < 1) throw Error(ErrorCode::kInvalid, "num_worker_threads must be at least 1");
  if (options.rpc_timeout.count() < 0) throw Error(ErrorCode::kInvalid, "rpc_timeout must not be negative");
  if (options.heartbeat_limit < milliseconds(100)) {
    throw Error(ErrorCode::kInvalid, "heartbeat_limit must be at least 100 ms");
  }
  for (milliseconds* limit :
       {&options.rpc_timeout, &options.init_timeout, &options.stop_limit, &options.heartbeat_limit}) {
    *limit = std::min(*limit, kLongestLimit);
  }
  if (!options.functions) options.functions = std::make_shared<Functions>();
  if (options.init_timeout.count() < 0) options.init_timeout = DefaultInitTimeout(options.rpc_timeout);
  return options;
}

// Serves the calls of Python functions where nothing else does.
void RefusePython(const std::shared_ptr<IncomingCall>&) {
  throw Error(ErrorCode::kUnknownFunction,
              "the worker runs no Python: what can be called there are registered functions, operators and scripts");
}

WorkerInfo InfoOf(const rpc::Peer& peer) { return {peer.name, peer.id.rank, peer.id.incarnation}; }

// The real parts: a loop, a pool, TCP to others and the in-process transport to oneself.
struct RealParts : WorkerParts {
  explicit RealParts(const WorkerOptions& options) {
    auto real_loop = std::make_shared<Loop>();
    clock = real_loop;
    executor = std::make_shared<ThreadPool>(ThreadPool::Options{.max_running = options.num_worker_threads,
                                                                .thread_start = options.thread_start,
                                                                .thread_stop = options.thread_stop});
    transports = {std::make_shared<transport::TcpTransport>(
                      *real_loop, transport::TcpOptions{.bind_host = ListenHost(options.host, *options.store)}),
                  std::make_shared<transport::InprocTransport>(own_network, executor)};
  }
  ~RealParts() {
    for (const auto& transport : transports) transport->Stop();
  }

  transport::InprocNetwork own_network;
};

}  // namespace

class Worker::Impl : public Layers {
 public:
  Impl(WorkerOptions given, std::shared_ptr<WorkerParts> given_parts)
      : options(Checked(std::move(given))), owns_parts(!given_parts), parts(std::move(given_parts)) {
    if (!options.store) {
      const auto begin = std::chrono::steady_clock::now();
      options.store = OpenStore(options.init_method, options.rank, options.world_size, options.init_timeout);
      if (options.init_timeout.count() > 0) {
        const auto used = std::chrono::floor<milliseconds>(std::chrono::steady_clock::now() - begin);
        options.init_timeout = std::max(options.init_timeout - used, milliseconds(1));
      }
    }
    if (!parts) parts = std::make_shared<RealParts>(options);
    info = {options.name, options.rank};  // whole when built
    is_open = options.world_size == WorkerOptions::kOpenGroup;
    MarkGroup(*options.store, is_open);
    std::optional<Rendezvous> rendezvous;
    auto internal = std::make_shared<Functions>();
    if (is_open) {
      open_group = std::make_unique<OpenGroup>(options.store, *parts, *internal);
    } else {
      rendezvous.emplace(*options.store, Rendezvous::Options{.rank = static_cast<uint32_t>(options.rank),
                                                             .world_size = static_cast<uint32_t>(options.world_size),
                                                             .limit = options.init_timeout});
    }
    Build(is_open ? open_group->JobKey() : rendezvous->JobKey(), internal);
    try {
      is_open ? MeetOpen() : Meet(*rendezvous);
    } catch (...) {
      Stop("it could not join its group");
      throw;
    }
  }

  ~Impl() { Stop("worker '" + info.name + "' has ended"); }

  void Build(const std::string& job_key, const std::shared_ptr<Functions>& internal) {
    losses = std::make_shared<Losses>(parts->executor);
    if (!options.functions->Find(kPythonFunction)) internal->AddHandler(kPythonFunction, RefusePython);
    rpc::Rpc::Options rpc_options;
    const uint32_t drawn = std::max(std::random_device()(), 1u);  // 0 is nobody's (WorkerInfo)
    const uint32_t incarnation = parts->incarnation ? parts->incarnation : drawn;
    rpc_options.self = {.id = {static_cast<uint32_t>(options.rank), incarnation}, .name = options.name};
    info = InfoOf(rpc_options.self);
    rpc_options.is_open = is_open;
    rpc_options.job_key = job_key;
    rpc_options.timeout = options.rpc_timeout;
    rpc_options.clock = parts->clock;
    rpc_options.executor = parts->executor;
    rpc_options.transports = parts->transports;
    rpc_options.refuse_without_credit = options.refuse_when_overloaded;
    rpc_options.faults = options.faults;
    rpc_options.functions = options.functions;
    rpc_options.internal_functions = internal;
    rpc_options.heartbeat_limit = options.heartbeat_limit;
    rpc_options.on_fenced = [this](const Failure& why) { OnFenced(why); };
    rpc_options.on_peer_reach = [this](const rpc::Peer& peer, const std::optional<Failure>& why) {
      quiesce->OnPeerReach(peer.id.rank, !why);
      gather->OnPeerReach(peer, why);
    };
    rpc_options.awaited = [this] { return gather->Awaited(); };
    rpc_options.on_peer_ended = [this](const rpc::Peer& peer, const Failure& why) {
      if (left_behind || fenced) return;
      rpc->members().Lose(peer.id);
      losses->Add(InfoOf(peer), why);
    };
    Layers::Build(std::move(rpc_options));
    autograd->set_describe(options.describe_error);
    if (open_group) open_group->Attach(rpc.get());
  }

  // This worker as others see it. It is a member itself from then on.
  rpc::Member Listen() {
    rpc::Member self{.peer = rpc->self(), .addresses = rpc->Listen(), .published = options.published};
    // Only this process reaches its in-process address, and only itself should use it.
    rpc::Member published = self;
    std::erase_if(published.addresses,
                  [&](const std::string& address) { return owns_parts && address.rfind("inproc://", 0) == 0; });
    std::reverse(self.addresses.begin(), self.addresses.end());
    rpc->members().Add(std::move(self));
    return published;
  }

  // All waits of this worker end: its calls have failed, and its sessions have ended. It keeps what it has until it is
  // shut down.
  void OnFenced(const Failure& why) {
    fenced = true;
    quiesce->Abandon(why.text);
    gather->OnFenced(why);
  }

  void MeetOpen() {
    const rpc::Member self = Listen();
    rpc->JoinGroup();
    open_group->Join(self, options.init_timeout);
    rpc->StartWatching();
  }

  void Meet(Rendezvous& rendezvous) {
    const rpc::Member self = Listen();
    for (rpc::Member& member : rendezvous.Exchange(self)) {
      if (member.peer.id != self.peer.id) rpc->members().Add(std::move(member));
    }
    rpc->JoinGroup();  // before the others know that this worker is there: they will watch it
    // Nobody watches yet, since not all may know each other.
    rendezvous.AwaitAllReady([this](uint32_t rank) { return rpc->IsGone(rpc->members().Ranked(rank).id); });
    rpc->StartWatching();
    if (options.rank > 0) options.store.reset();  // it has served; rank 0 may be the one that keeps it up for all
    quiesce->Join();
  }

  void CheckMayEndHere() const {
    if (!parts->executor->OwnsThisThread()) return;
    throw Error(ErrorCode::kInvalid, "worker '" + info.name +
                                         "' cannot be shut down by a function that it runs for others, nor by a "
                                         "callback: it would wait for that to end. Let a thread of the program do it");
  }

  // Of several threads that shut down gracefully the first one works, the others wait for it. One that is not graceful
  // does not wait: it ends the wait of those who do.
  void Shutdown(bool graceful, milliseconds timeout) {
    if (graceful) {
      std::unique_lock lock(mutex);
      if (std::exchange(shut_down, true)) return AwaitStopped(lock);
    }
    std::optional<Failure> failure;
    if (graceful) {
      try {
        const TimePoint begin = parts->clock->Now();
        const auto left = [&] {
          if (timeout.count() == 0) return timeout;
          const auto passed = std::chrono::duration_cast<milliseconds>(parts->clock->Now() - begin);
          return std::max(timeout - passed, milliseconds(1));
        };
        AwaitQuiet(left());
        references->DropAll();
        AwaitQuiet(left());
        for (const std::string& leak : references->Leaks()) Log(LogLevel::kWarning, "Leaking RRef: " + leak);
        AwaitQuiet(left());  // nobody leaves before all have looked at what others hold of theirs
      } catch (const Error& error) {
        failure = error.failure();
      }
    }
    Stop("worker '" + info.name + "' has shut down");
    if (failure) throw Error(*failure);
  }

  void AwaitQuiet(milliseconds timeout) {
    if (fenced) return;
    is_open ? open_group->Drain(timeout) : quiesce->Wait(timeout);
  }

  void Stop(const std::string& why) {
    {
      std::unique_lock lock(mutex);
      shut_down = true;
      if (std::exchange(stopping, true)) return AwaitStopped(lock);
    }
    StopParts(why);
    const std::lock_guard lock(mutex);
    stopped = true;
    stop_ended.notify_all();
  }

  // Until the thread that stops this worker has done so. Not on a thread of a pool, which it may be waiting for.
  void AwaitStopped(std::unique_lock<std::mutex>& lock) {
    if (parts->executor->InTask()) return;
    while (!stopped) {
      stop_ended.wait_for(lock, milliseconds(100));
      lock.unlock();
      if (const WaitHook::Hook hook = WaitHook::current()) hook();
      lock.lock();
    }
  }

  void StopParts(const std::string& why) {
    quiesce->Abandon(why);
    gather->Abandon(why);
    left_behind = true;
    losses->Close();
    if (open_group) open_group->Leave();
    autograd->Close({.code = ErrorCode::kDisconnected, .text = why, .worker = info.name});
    rpc->Stop(why);
    references->DropAll();
    references->Close({.code = ErrorCode::kInvalid, .text = why, .worker = info.name});
    if (!owns_parts) return;
    for (const auto& transport : parts->transports) transport->Stop();
    std::optional<Duration> limit;
    if (options.stop_limit.count() >= 0) limit = options.stop_limit;
    handlers_left = !static_cast<ThreadPool&>(*parts->executor).Stop(limit);
    static_cast<Loop&>(*parts->clock).Stop();
  }

  rpc::Peer PeerOf(const WorkerInfo& info) const { return rpc->members().Meant(info); }

  WorkerOptions options;
  const bool owns_parts;
  std::shared_ptr<WorkerParts> parts;
  WorkerInfo info;
  bool is_open = false;
  std::atomic<bool> fenced{false};  // it is in its group no more: nobody is waited for

  std::unique_ptr<OpenGroup> open_group;  // empty in a fixed group
  std::shared_ptr<Losses> losses;

  std::atomic<bool> left_behind{false};  // the others are, by this worker: it ends, and who ends with it is not lost
  std::mutex mutex;
  std::condition_variable stop_ended;
  bool shut_down = false;
  bool stopping = false;
  bool stopped = false;
  bool handlers_left = false;  // they still use this object
};

Worker::Worker(WorkerOptions options) : Worker(std::move(options), nullptr) {}
Worker::Worker(WorkerOptions options, std::shared_ptr<WorkerParts> parts)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(parts))) {}
Worker::~Worker() {
  impl_->Stop("worker '" + impl_->info.name + "' has ended");
  if (impl_->handlers_left) static_cast<void>(impl_.release());
}

const WorkerInfo& Worker::info() const { return impl_->info; }

WorkerInfo Worker::worker_info(const std::string& name) const { return InfoOf(impl_->rpc->members().Named(name)); }
WorkerInfo Worker::worker_info(int64_t rank) const { return InfoOf(impl_->rpc->members().Ranked(rank)); }

std::vector<WorkerInfo> Worker::worker_infos() const {
  std::vector<WorkerInfo> infos;
  for (const rpc::Member& member : impl_->rpc->members().All()) infos.push_back(InfoOf(member.peer));
  return infos;
}

std::string Worker::published(int64_t rank) const {
  const rpc::Peer peer = impl_->rpc->members().Ranked(rank);
  const std::optional<rpc::Member> member = impl_->rpc->members().Find(peer.id);
  return member ? member->published : std::string();
}

void Worker::on_worker_lost(std::function<void(const WorkerInfo&, const Failure&)> callback) {
  impl_->losses->Listen(std::move(callback));
}

bool Worker::group_is_open() const { return impl_->is_open; }
Functions& Worker::functions() { return *impl_->options.functions; }
milliseconds Worker::rpc_timeout() const { return impl_->rpc->timeout(); }
void Worker::set_rpc_timeout(milliseconds timeout) { impl_->rpc->set_timeout(timeout); }
void Worker::shutdown(bool graceful, milliseconds timeout) {
  impl_->CheckMayEndHere();
  impl_->Shutdown(graceful, timeout);
}
autograd::Autograd& Worker::autograd() { return *impl_->autograd; }
void Worker::AwaitQuiet(milliseconds timeout) { impl_->AwaitQuiet(timeout); }
void Worker::DropReferences() { impl_->references->DropAll(); }
std::vector<std::string> Worker::Leaks() const { return impl_->references->Leaks(); }

Worker::Counts Worker::counts() const {
  const rpc::Rpc::Counts calls = impl_->rpc->counts();
  const rref::References::Counts references = impl_->references->counts();
  return {.pending_calls = calls.pending,
          .serving_calls = calls.serving,
          .owned_rrefs = references.owned,
          .forks = references.forks,
          .held_rrefs = references.held,
          .creating_rrefs = references.creating,
          .waiting_fetches = references.waiting,
          .rref_entries = references.entries,
          .autograd_contexts = impl_->autograd->counts().contexts,
          .backward_passes = impl_->autograd->counts().passes};
}

std::map<std::string, Payload> Worker::AllGather(Payload value, std::vector<std::string> workers, CallOptions options) {
  // All of a fixed group, with the lost: a gathering does not become a smaller one behind the program's back.
  if (workers.empty() && !impl_->is_open) {
    for (int rank = 0; rank < impl_->options.world_size; ++rank) {
      workers.push_back(impl_->rpc->members().Ranked(rank).name);
    }
  }
  return impl_->gather->All(std::move(value), std::move(workers), options.timeout, std::move(options.shown_as));
}

namespace {
rpc::Call MakeCall(const rpc::Peer& to, const std::string& function, Payload args, CallOptions options) {
  rpc::Call call;
  call.to = to.id;
  call.function = function;
  call.args = std::move(args);
  call.options = std::move(options);
  return call;
}
}  // namespace

CallHandle Worker::Send(const WorkerInfo& to, const std::string& function, Payload args, CallOptions options,
                        Completion done) {
  return impl_->rpc->Send(MakeCall(impl_->PeerOf(to), function, std::move(args), std::move(options)), std::move(done));
}

Outcome Worker::SendAndWait(const WorkerInfo& to, const std::string& function, Payload args, CallOptions options) {
  return impl_->rpc->SendAndWait(MakeCall(impl_->PeerOf(to), function, std::move(args), std::move(options)));
}

std::shared_ptr<RRefHandle> Worker::Remote(const WorkerInfo& to, const std::string& function, Payload args,
                                           CallOptions options) {
  return impl_->references->Remote(impl_->PeerOf(to), function, std::move(args), std::move(options));
}

std::shared_ptr<RRefHandle> Worker::Own(Payload value, std::string type_name) {
  return impl_->references->Own(std::move(value), std::move(type_name));
}

std::shared_ptr<detail::FutureState> Worker::NewFuture() {
  return std::make_shared<detail::FutureState>(impl_->parts->executor);
}

}  // namespace gradwire
