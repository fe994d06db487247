#include <map>
#include <tuple>
#include <utility>

#include "gradwire/optim.h"
#include "gradwire/worker.h"

namespace gradwire::optim {
namespace {

// Until all have ended: nothing of a step goes on after it. Then the first failure is thrown.
template <class T>
void AwaitAll(const std::vector<Future<T>>& futures) {
  for (const Future<T>& future : collect_all(futures).wait()) future.wait();
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(Worker& worker, const std::string& optimizer,
                                           const std::vector<RRef<at::Tensor>>& parameters, const Options& options)
    : worker_(worker) {
  std::map<std::string, std::vector<RRef<at::Tensor>>> by_owner;
  for (const auto& parameter : parameters) by_owner[parameter.owner().name].push_back(parameter);
  for (const auto& [owner, own] : by_owner) {
    Payload args =
        EncodeValue(std::tuple<std::string, Options, std::vector<RRef<at::Tensor>>>(optimizer, options, own));
    parts_.push_back({owner, worker_.Remote(worker_.worker_info(owner), "optim.create", std::move(args), {})});
  }
  std::vector<Future<void>> creations;
  for (const Part& part : parts_) creations.push_back(part.optimizer->creation());
  AwaitAll(creations);
}

void DistributedOptimizer::step(int64_t context_id) {
  std::vector<Future<bool>> steps;
  for (const Part& part : parts_) {
    steps.push_back(worker_.rpc_async<bool>(
        part.owner, "optim.step", std::tuple<RRef<at::Tensor>, int64_t>(RRef<at::Tensor>(part.optimizer), context_id)));
  }
  AwaitAll(steps);
}

}  // namespace gradwire::optim
