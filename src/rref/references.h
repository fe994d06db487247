// References: the RRef layer of one worker. Tables, handles, and the functions and hooks that join them to calls.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/rref.h"
#include "rpc/rpc.h"

namespace gradwire::rref {

class References {
 public:
  // Registers the `rref.*` functions. Attach() before the first call.
  References(rpc::Peer self, Functions& internal_functions);
  ~References();
  References(const References&) = delete;

  std::shared_ptr<rpc::Interceptor> interceptor();
  void Attach(std::shared_ptr<rpc::Rpc> rpc);

  // A call whose result stays with its callee. Throws Error when it fails before the send step.
  std::shared_ptr<RRefHandle> Remote(const rpc::Peer& to, const std::string& function, Payload args,
                                     CallOptions options);
  // A reference to a value of this worker.
  std::shared_ptr<RRefHandle> Own(Payload value, std::string type_name);

  // Lets go of everything that handles of the program still hold; each later use of them is an error that says so (R5).
  void DropAll();
  // Values of this worker that others still hold, each as one line.
  std::vector<std::string> Leaks() const;
  // The session with a peer has ended; then: the last message that came from it has been handled. What waits here for
  // it ends with an error (C1), and rule 8 begins. Either may be called under a role.
  void OnLost(const rpc::Peer& peer, const Failure& why);
  void OnDrained(const rpc::Peer& peer);
  // Every wait ends with `why` (C1), values are freed, and nothing is sent any more.
  void Close(const Failure& why);

  struct Counts {
    size_t owned = 0;      // values here that others hold
    size_t forks = 0;      // held by others of values here
    size_t held = 0;       // forks held here of values elsewhere
    size_t creating = 0;   // of those: the creating call has not been answered
    size_t waiting = 0;    // fetches and confirmations that wait, and values that are being made
    size_t in_doubt = 0;   // values that are kept for what a lost worker may have passed on
    size_t questions = 0;  // about lost workers: asked of others and by others, and not answered
    size_t entries = 0;    // everything that the tables hold, tombstones and questions included
  };
  Counts counts() const;

  class Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace gradwire::rref
