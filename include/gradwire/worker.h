// Worker: this process's part in a group of workers. The first class to know.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradwire/call.h"
#include "gradwire/error.h"
#include "gradwire/export.h"
#include "gradwire/faults.h"
#include "gradwire/function.h"
#include "gradwire/future.h"
#include "gradwire/rref.h"
#include "gradwire/store.h"
#include "gradwire/value.h"
#include "gradwire/worker_info.h"

namespace gradwire {

struct WorkerParts;  // clock, executor and transports, for simulation (src/worker/parts.h)
namespace autograd {
class Autograd;
}

struct WorkerOptions {
  std::string name;  // letters, digits, "_", ":", "-"; under 128 characters
  int rank = -1;     // 0 .. world_size - 1
  // Of a fixed group: construction waits until all are there. kOpenGroup: workers come and go, each with a rank of its
  // own; construction waits until those who are there know this one, and shutdown waits for nobody.
  int world_size = -1;
  static constexpr int kOpenGroup = 0;

  // Where the workers meet: "tcp://host:port" (rank 0 serves), "file://path", "env://" (MASTER_ADDR, MASTER_PORT, RANK,
  // WORLD_SIZE), unless `store` is given.
  std::string init_method = "env://";
  std::shared_ptr<Store> store;

  // The interface that other workers reach this one by: a numeric address or a name of this host. When empty, what the
  // environment variable GRADWIRE_HOST says, or else the interface that leads to the machine that serves the store.
  std::string host;

  std::chrono::milliseconds rpc_timeout{60'000};  // default of calls; 0: none
  // Of the construction; 0: none. Negative: 30 minutes, or where rpc_timeout is not its default the larger of that and
  // 5 s. Every 30 s a warning says which ranks are waited for.
  std::chrono::milliseconds init_timeout{-1};
  // Whoever is silent for longer is taken for lost, and the group decides (docs/membership.md). At least 100 ms.
  std::chrono::milliseconds heartbeat_limit{10'000};
  size_t num_worker_threads = 16;  // handlers that run at one time, waiting ones not counted (C3)

  // While 1,024 requests of this worker wait on a callee to be begun, further calls wait for their turn (C4), or throw
  // kOverloaded.
  bool refuse_when_overloaded = false;

  // How long the end of the worker waits for handlers that still run; then it leaves them to themselves, with what they
  // use. Negative: as long as they take. After a graceful shutdown none runs.
  std::chrono::milliseconds stop_limit{-1};

  std::string published;                 // whatever all others are to know of this worker from the start
  std::shared_ptr<Faults> faults;        // of tests; may be empty
  std::shared_ptr<Functions> functions;  // what others may call here; a new table when empty
  std::function<void()> thread_start;    // first and last thing that each thread of the worker runs
  std::function<void()> thread_stop;

  // Describes exceptions that only another language understands, which nodes and hooks of a backward pass throw: called
  // where one was caught, without locks; nothing for those that it does not know.
  std::function<std::optional<Failure>(const std::exception_ptr&)> describe_error;
};

// Thread-safe. Several workers may live in one process. Methods throw Error; after shutdown with kInvalid.
class GRADWIRE_API Worker {
 public:
  // Joins the group. Throws Error(kTimedOut) that names the missing ranks, kUnreachable when nobody serves the store,
  // kInvalid for bad options and for a name that is not unique in the group.
  explicit Worker(WorkerOptions options);
  Worker(WorkerOptions options, std::shared_ptr<WorkerParts> parts);  // on parts of one's own, for simulation
  ~Worker();  // leaves without waiting for anybody, as shutdown(false); not from a pool thread
  Worker(const Worker&) = delete;

  const WorkerInfo& info() const;
  // Error(kUnknownWorker). A worker that is gone is found until another takes its name: calls to it fail with
  // kDisconnected, and say why. So do calls to the WorkerInfo of one whose name another has taken.
  WorkerInfo worker_info(const std::string& name) const;
  WorkerInfo worker_info(int64_t rank) const;
  std::vector<WorkerInfo> worker_infos() const;  // of those who are there, by rank
  // Calls `callback` on the pool, once for each worker that is lost from now on or was before: not for one that leaves
  // by itself, nor once this worker leaves. One callback runs at a time, in the order of the losses; what it throws is
  // logged.
  void on_worker_lost(std::function<void(const WorkerInfo&, const Failure& reason)> callback);
  bool group_is_open() const;
  std::string published(int64_t rank) const;  // what that worker has given as WorkerOptions::published
  Functions& functions();
  std::chrono::milliseconds rpc_timeout() const;
  void set_rpc_timeout(std::chrono::milliseconds timeout);  // for calls made afterwards

  // Calls `function` on the worker named `to` and waits for the result. Tensors travel with their values; arguments
  // stay unchanged until the call has ended.
  template <class R, class... A, class... Given>
  R rpc_sync(const std::string& to, const Function<R(A...)>& function, Given&&... args) {
    return rpc_sync<R>(to, function.name, std::tuple<A...>(std::forward<Given>(args)...));
  }
  // By name alone: the callee checks the arguments, a tuple of values, against its own types.
  template <class R, class... A>
  R rpc_sync(const std::string& to, const std::string& function, const std::tuple<A...>& args,
             CallOptions options = {}) {
    Outcome outcome = SendAndWait(worker_info(to), function, EncodeValue(args), std::move(options));
    Payload& value = outcome.value();
    if constexpr (!std::is_void_v<R>) return DecodeResult<R>(value, function, to);
  }

  // The same without waiting. An error of the arguments is thrown here, all others come from the future.
  template <class R, class... A, class... Given>
  Future<R> rpc_async(const std::string& to, const Function<R(A...)>& function, Given&&... args) {
    return rpc_async<R>(to, function.name, std::tuple<A...>(std::forward<Given>(args)...));
  }
  template <class R, class... A>
  Future<R> rpc_async(const std::string& to, const std::string& function, const std::tuple<A...>& args,
                      CallOptions options = {}) {
    auto state = NewFuture();
    Completion done = [promise = detail::Promise(state), function, to](Outcome outcome) {
      try {
        Payload& value = outcome.value();
        if constexpr (std::is_void_v<R>) {
          promise->Complete(nullptr);
        } else {
          promise->Complete(std::make_shared<R>(DecodeResult<R>(value, function, to)));
        }
      } catch (...) {
        promise->Fail(detail::CaughtFailure());
      }
    };
    state->SetCall(Send(worker_info(to), function, EncodeValue(args), std::move(options), std::move(done)));
    return Future<R>(std::move(state));
  }

  // The same, with the result kept by the callee: returns at once with a reference to it.
  template <class R, class... A, class... Given>
  RRef<R> remote(const std::string& to, const Function<R(A...)>& function, Given&&... args) {
    return remote<R>(to, function.name, std::tuple<A...>(std::forward<Given>(args)...));
  }
  template <class R, class... A>
  RRef<R> remote(const std::string& to, const std::string& function, const std::tuple<A...>& args,
                 CallOptions options = {}) {
    return RRef<R>(Remote(worker_info(to), function, EncodeValue(args), std::move(options)));
  }
  // A reference to a value that lives here.
  template <class T>
  RRef<T> make_rref(const T& value) {
    return RRef<T>(Own(EncodeValue(value), {}));
  }

  // What each of `workers` has passed, by name, once all of them have called this with the same names; without names,
  // all workers of the group, of an open one those who are there. The values are copies, the own one too. Several at a
  // time of one set of workers must be made in one order everywhere. The first whose timeout passes (by default that of
  // calls) ends it for all: Error(kTimedOut) names who has not come; kDisconnected names who is gone.
  template <class T>
  std::map<std::string, T> all_gather(const T& value, std::vector<std::string> workers = {}, CallOptions options = {}) {
    std::map<std::string, T> all;
    for (auto& [name, part] : AllGather(EncodeValue(value), std::move(workers), std::move(options))) {
      all.emplace(name, detail::DecodeValueOf<T>(part, [&] { return "what worker '" + name + "' has passed"; }));
    }
    return all;
  }
  // Returns when all of them have called it.
  void barrier(std::vector<std::string> workers = {}, CallOptions options = {}) {
    options.shown_as = "barrier";
    AllGather(EncodeValue(true), std::move(workers), std::move(options));
  }

  // Waits until every worker has arrived here and no work is left, then ends this one (M2). With `graceful` false, or
  // when `timeout` (0: none) has passed in all, it ends at once; in the second case kTimedOut is thrown after that and
  // names who is missing. Leaks of references are logged as warnings. Idempotent. Error(kInvalid) on a thread of the
  // worker's own, which runs a function for others or a callback: it would wait for itself.
  void shutdown(bool graceful = true, std::chrono::milliseconds timeout = std::chrono::milliseconds{0});

  // ---- The same on encoded values: what the Python package stands on. ----
  CallHandle Send(const WorkerInfo& to, const std::string& function, Payload args, CallOptions options,
                  Completion done);
  Outcome SendAndWait(const WorkerInfo& to, const std::string& function, Payload args, CallOptions options);
  std::shared_ptr<RRefHandle> Remote(const WorkerInfo& to, const std::string& function, Payload args,
                                     CallOptions options);
  std::shared_ptr<RRefHandle> Own(Payload value, std::string type_name);
  std::map<std::string, Payload> AllGather(Payload value, std::vector<std::string> workers, CallOptions options);
  std::shared_ptr<detail::FutureState> NewFuture();

  // ---- The steps of shutdown(), for who puts its own between them. ----
  // Waits until all workers have called this equally often and the group is quiet. `timeout` and errors as of shutdown,
  // which makes three such rounds: drops its references after the first, and looks for leaks after the second.
  void AwaitQuiet(std::chrono::milliseconds timeout);
  // Lets go of all references that the program still holds here; each later use of one is an error that says so (R5).
  void DropReferences();
  // Values of this worker that others hold, each as one line.
  std::vector<std::string> Leaks() const;

  // How much of everything there is now, for people who look for what is stuck.
  struct Counts {
    size_t pending_calls = 0;    // wait for their reply
    size_t serving_calls = 0;    // run here
    size_t owned_rrefs = 0;      // values here that others hold
    size_t forks = 0;            // references to them
    size_t held_rrefs = 0;       // references here to values elsewhere
    size_t creating_rrefs = 0;   // of those: the owner has not answered yet
    size_t waiting_fetches = 0;  // wait for a value that is being made here, or for the owner's confirmation
    size_t rref_entries = 0;     // all that is kept here about references, and about lost workers that held some
    size_t autograd_contexts = 0;
    size_t backward_passes = 0;
  };
  Counts counts() const;

  // Distributed autograd of this worker (autograd.h).
  autograd::Autograd& autograd();

 private:
  template <class R>
  static R DecodeResult(const Payload& value, const std::string& function, const std::string& worker) {
    return detail::DecodeValueOf<R>(value,
                                    [&] { return "the result of '" + function + "' on worker '" + worker + "'"; });
  }

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire
