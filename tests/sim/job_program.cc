// What the workers of a Job do, and what must come of it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "gradwire/autograd.h"
#include "sim/job.h"

namespace gradwire::sim {
namespace {

using std::chrono::milliseconds;

// Most go with their message, some by pieces into memory that is found apart.
at::Tensor Numbers(int64_t number) {
  return at::full({number % 8 == 0 ? 70'000 : 40}, static_cast<double>(number), at::kFloat);
}

std::string Name(size_t rank) { return "worker" + std::to_string(rank); }

}  // namespace

size_t Job::Another(size_t rank) {
  const size_t other = (*this)[rank].random() % (parts_.size() - 1);
  return other + (other >= rank);
}

Worker& Job::StartedWorker(Part& part) {
  part.node->Await(part.started);
  return *part.worker;
}

void Job::AddFunctions(size_t rank, Functions& functions) {
  Part& part = (*this)[rank];
  functions.Add("next", [this](int64_t number) {
    ++runs_[number];
    return number + 1;
  });
  functions.Add("twice", [this](int64_t number, const at::Tensor& values) {
    ++runs_[number];
    return values * 2;
  });
  functions.Add("by way of", [this, &part](int64_t number, int64_t to) -> Future<int64_t> {
    ++runs_[number];
    return StartedWorker(part).rpc_async<int64_t>(Name(static_cast<size_t>(to)), "next", std::tuple(++last_number_));
  });
  functions.Add(
      "in order",
      [this, &part](int64_t from, int64_t number) {
        Check("O1", part.numbers[from] < number, "call " + std::to_string(number) + " came after a later one");
        part.numbers[from] = number;
        return number;
      },
      {.is_ordered = true});
  functions.Add("make", [](int64_t value) { return value; });
  functions.Add("use", [this, rank](const RRef<int64_t>& ref, int64_t value, int64_t maker, int64_t hops) {
    return Use(rank, ref, value, static_cast<size_t>(maker), hops);
  });
  functions.Add("layer", [this, &part](at::Tensor x, const std::vector<int64_t>& then) {
    at::Tensor y = at::tanh(x * part.parameter);
    if (then.empty()) return y;
    const std::vector<int64_t> rest(then.begin() + 1, then.end());
    const std::string next = Name(static_cast<size_t>(then[0]));
    return StartedWorker(part).rpc_sync<at::Tensor>(next, "layer", std::tuple(y, rest)) + y;
  });
}

// What somebody shares: it is fetched, sometimes shared with others in turn, and kept for a while or not at all. That a
// worker that has passed it on is lost is no excuse, but the loss of its maker may be: perhaps it was never made.
int64_t Job::Use(size_t rank, const RRef<int64_t>& ref, int64_t value, size_t maker, int64_t hops) {
  Part& part = (*this)[rank];
  const size_t owner = ref.owner().id;
  try {
    if (hops > 0) {
      StartedWorker(part).rpc_async<int64_t>(Name(Another(rank)), "use",
                                             std::tuple(ref, value, static_cast<int64_t>(maker), hops - 1));
    }
    if (part.random() % 3) Check("R1", ref.to_here() == value, "a reference gave another value");
  } catch (const Error& error) {
    Failed(rank, {maker, owner}, error, "a shared reference");
    throw;
  }
  if (part.random() % 2) Keep(part, ref);
  return value;
}

void Job::Keep(Part& part, const RRef<int64_t>& ref) {
  part.kept.push_back(ref);
  if (part.kept.size() > 3) part.kept.pop_front();
}

// An error must have a fault for its reason.
void Job::Failed(size_t rank, const std::vector<size_t>& others, const Error& error, const std::string& doing) {
  ++report_.ends_by_error;
  Check("O3", MayFail(rank, others), doing + " of worker" + std::to_string(rank) + " failed: " + error.what());
}

void Job::CallMany(size_t rank, int calls) {
  Part& part = (*this)[rank];
  struct Called {
    int64_t number = 0, wanted = 0;  // 0: its runs are not counted, its answer is not foreseen
    size_t to = 0, by = 0;           // `by` is asked to call `to`
    std::optional<Future<int64_t>> answer;
    std::optional<Future<at::Tensor>> tensor;
  };
  std::vector<Called> called;
  for (int i = 0; i < calls; ++i) {
    Called one;
    one.number = ++last_number_;
    one.wanted = one.number + 1;
    one.to = part.random() % parts_.size();
    one.by = rank;
    const std::string to = Name(one.to);
    switch (part.random() % 6) {
      case 0:
        one.answer =
            part.worker->rpc_async<int64_t>(to, "in order", std::tuple(static_cast<int64_t>(rank), one.number));
        one.wanted = std::exchange(one.number, 0);
        break;
      case 1:
        one.tensor = part.worker->rpc_async<at::Tensor>(to, "twice", std::tuple(one.number, Numbers(one.number)));
        break;
      case 2:
        one.wanted = 0;  // of another call, which its callee makes
        one.by = one.to;
        one.to = part.random() % parts_.size();
        one.answer = part.worker->rpc_async<int64_t>(Name(one.by), "by way of",
                                                     std::tuple(one.number, static_cast<int64_t>(one.to)));
        break;
      default: one.answer = part.worker->rpc_async<int64_t>(to, "next", std::tuple(one.number));
    }
    called.push_back(std::move(one));
  }
  for (Called& one : called) {
    try {
      if (one.tensor) {
        Check("O3", one.tensor->wait().equal(Numbers(one.number) * 2), "wrong numbers in a tensor");
      } else {
        const int64_t answer = one.answer->wait();
        if (one.wanted > 0) Check("O3", answer == one.wanted, "a wrong answer");
      }
      if (one.number > 0) Check("O4", runs_[one.number] == 1, "a call that was answered did not run once");
    } catch (const Error& error) {
      Failed(rank, {one.to, one.by}, error, "a call");
      if (one.number == 0) continue;
      const std::string text = error.failure().text;
      const int most = one.wanted > 0 && text.find("has not run") != std::string::npos ? 0 : 1;
      Check("O4", runs_[one.number] <= most, "a call that failed ran all the same: " + text);
    }
    ++report_.checks["C1"];
  }
}

void Job::ShareOne(size_t rank) {
  Part& part = (*this)[rank];
  const size_t owner = part.random() % parts_.size(), user = Another(rank);
  const int64_t value = ++last_number_;
  try {
    const auto ref = part.worker->remote<int64_t>(Name(owner), "make", std::tuple(value));
    const auto used = part.worker->rpc_async<int64_t>(
        Name(user), "use",
        std::tuple(ref, value, static_cast<int64_t>(rank), static_cast<int64_t>(part.random() % 3)));
    if (part.random() % 2) Check("R1", ref.to_here() == value, "a reference gave another value");
    if (part.random() % 2) used.wait();
    if (part.random() % 2) Keep(part, ref);
  } catch (const Error& error) {
    Failed(rank, {owner, user}, error, "sharing a reference");
  }
}

void Job::Train(size_t rank) {
  Part& part = (*this)[rank];
  std::vector<int64_t> way;
  std::vector<size_t> others;
  for (size_t i = 0; i < 1 + part.random() % 3; ++i) {
    others.push_back(others.empty() ? Another(rank) : part.random() % parts_.size());
    way.push_back(static_cast<int64_t>(others.back()));
  }
  const double start = 0.3 + 0.01 * static_cast<double>(part.random() % 50);
  const at::Tensor x = at::full({4}, start, at::kDouble).set_requires_grad(true);
  const std::function<at::Tensor(at::Tensor, size_t)> local = [&](at::Tensor y, size_t at) {
    y = at::tanh(y * (*this)[others[at]].parameter);
    return at + 1 < others.size() ? local(y, at + 1) + y : y;
  };
  std::vector<at::Tensor> leaves{x};
  for (auto& one : parts_) leaves.push_back(one->parameter);
  const auto wanted = torch::autograd::grad({local(x * 2, 0).sum()}, leaves, {}, std::nullopt, false, true);
  try {
    const autograd::Context context(*part.worker);
    const std::vector<int64_t> rest(way.begin() + 1, way.end());
    const at::Tensor y = part.worker->rpc_sync<at::Tensor>(Name(others[0]), "layer", std::tuple(x * 2, rest));
    autograd::backward(*part.worker, context.id(), {y.sum()});
    for (size_t i = 0; i < leaves.size(); ++i) {
      const size_t owner = i == 0 ? rank : i - 1;
      at::Tensor got;
      if (autograd::knows_context(*(*this)[owner].worker, context.id())) {
        for (const auto& [leaf, gradient] : autograd::get_gradients(*(*this)[owner].worker, context.id())) {
          if (leaf.is_same(leaves[i])) got = gradient;
        }
      }
      const bool same = got.defined() == wanted[i].defined() &&
                        (!got.defined() || (got - wanted[i]).abs().max().item<double>() <= 1e-12);
      Check("A1", same || MayFail(rank, {owner}), "a gradient differs from one process");
    }
  } catch (const Error& error) {
    Failed(rank, others, error, "a backward pass");
  }
}

void Job::RunProgram(size_t rank) {
  Part& part = (*this)[rank];
  at::set_num_threads(1);  // of this thread
  try {
    Start(rank);
    const auto share = [&](int all) { return all / static_cast<int>(parts_.size()) + 1; };
    int calls = share(options_.calls), references = share(options_.references), passes = share(options_.passes);
    while (calls + references + passes > 0) {
      const auto choice = static_cast<int>(part.random() % static_cast<uint64_t>(calls + references + passes));
      Progress();
      if (choice < calls) {
        const int some = std::min(calls, 1 + static_cast<int>(part.random() % 12));
        CallMany(rank, some);
        calls -= some;
      } else if (choice < calls + references) {
        ShareOne(rank);
        --references;
      } else {
        Train(rank);
        --passes;
      }
    }
    part.worker->AwaitQuiet(milliseconds(0));
    part.kept.clear();
    part.worker->AwaitQuiet(milliseconds(0));
    ExpectNothingLeft(rank);
    part.worker->shutdown();
    ++report_.checks["M2"];
  } catch (const Error& error) {
    Failed(rank, {}, error, "the program");
    part.kept.clear();
    if (part.worker) part.worker->shutdown(false);
  }
}

void Job::ExpectNothingLeft(size_t rank) {
  const Worker::Counts counts = (*this)[rank].worker->counts();
  if (MayFail(rank, {})) return;
  const std::string who = " of worker" + std::to_string(rank) + " is left";
  Check("R2", counts.owned_rrefs == 0, "a value" + who);
  Check("R2", counts.forks == 0, "a fork" + who);
  Check("R2", counts.held_rrefs == 0, "a reference" + who);
  Check("R2", counts.creating_rrefs == 0, "a creation" + who);
  Check("R2", counts.waiting_fetches == 0, "a fetch" + who);
  Check("A7", counts.autograd_contexts + counts.backward_passes == 0, "a context" + who);
  Check("C1", counts.pending_calls + counts.serving_calls == 0, "a call" + who);
}

}  // namespace gradwire::sim
