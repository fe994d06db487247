// The only file that touches the engine's internals.
#include "autograd/pass.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <typeinfo>
#include <unordered_map>

#include "autograd/cut_history.h"
#include "gradwire/future.h"

namespace gradwire::autograd {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::AnomalyMode;
using torch::autograd::Edge;
using torch::autograd::Engine;
using torch::autograd::InputBuffer;

// Ends the engine's run without its final callbacks; the reason is known already.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "the backward pass was stopped"; }
};

struct Driver final : Node {
  std::function<void()> body;
  TensorList apply(TensorList&&) override {
    body();
    return {};
  }
  std::string name() const override { return "gradwire::Driver"; }
};

struct ReadyNode {
  NodePtr node;
  InputBuffer inputs;
  // Of a heap: what was made last in the forward pass runs first, as in the engine.
  bool operator<(const ReadyNode& other) const { return node->sequence_nr() < other.node->sequence_nr(); }
};

struct NodeState {
  size_t missing = 0;  // edges that have not brought their gradient yet
  // Of an entry or a receive node: which of its tensors take part. An entry sends nothing along the edges of others.
  std::vector<bool> used;
  std::mutex mutex;    // guards both while nodes run
  std::optional<InputBuffer> inputs;
};

// One leaf's gradient of this pass.
struct LeafEntry {
  at::Tensor leaf;
  at::Tensor gradient;  // as it arrived; held until the end, so that one tensor for two leaves is seen as shared
  at::Tensor sum;       // defined early for leaves with post hooks, which may look for it
  std::optional<c10::Stream> stream;
};

Failure DescribeCaught(const Describe& describe) {
  if (describe) {
    if (auto known = describe(std::current_exception())) return std::move(*known);
  }
  Failure failure = detail::CaughtFailure();
  if (failure.code != ErrorCode::kRemote) {
    failure.type_name = "gradwire::Error " + std::string(ErrorCodeName(failure.code));
    failure.code = ErrorCode::kRemote;
  }
  return failure;
}

void CheckForNan(Node& node, const TensorList& outputs) {
  if (!AnomalyMode::is_enabled() || !AnomalyMode::should_check_nan()) return;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || outputs[i].is_sparse() || !at::isnan(outputs[i]).any().item<bool>()) continue;
    throw std::runtime_error("'" + node.name() + "' made a gradient with nan values, output " + std::to_string(i));
  }
}

// By its name: libtorch does not export what typeid() and dynamic_cast would need.
bool IsPythonNode(const Node& node) { return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0; }

// One call of Pass::Reach().
struct GraphWalk {
  std::unordered_map<Node*, NodeState>& nodes;
  TensorList& hooked;
  std::vector<Node*>& python_nodes;
  std::vector<Node*> left;  // found, and not walked from
  std::vector<Pass::Reached> found;
  std::unordered_map<Node*, size_t> place;  // of a receive node in `found`

  void Follow(const Edge& edge) {
    if (!edge.is_valid()) return;
    Node* const node = edge.function.get();
    const auto [it, is_new] = nodes.try_emplace(node);
    ++it->second.missing;
    if (is_new) {
      left.push_back(node);
      CheckHistory(*node);
      if (IsPythonNode(*node)) python_nodes.push_back(node);
      if (Loans::IsHooked(*node)) hooked.push_back(static_cast<AccumulateGrad*>(node)->variable);
    }
    auto* const recv = dynamic_cast<RecvBackward*>(node);
    if (!recv) return;
    std::vector<bool>& used = it->second.used;
    used.resize(node->num_inputs());
    if (used[edge.input_nr]) return;
    used[edge.input_nr] = true;
    const auto [at, is_first] = place.try_emplace(node, found.size());
    if (is_first) found.push_back({RecvPtr::reclaim_copy(recv), {}});
    found[at->second].tensors.push_back(edge.input_nr);
  }
};

}  // namespace

struct Pass::State {
  explicit State(Options given) : options(std::move(given)), loans(options.loans) {
    if (options.carry_thread_state) thread_state.emplace();
  }

  void BeginLoans();
  void Drive(const NodePtr& entry, TensorList gradients);
  void Execute(std::function<void()> body, bool chooses_outputs) const;  // in a node of the ordinary engine
  void Loop(const NodePtr& entry, TensorList gradients);
  void Run(ReadyNode ready, std::vector<ReadyNode>& heap);
  TensorList RunLeaf(AccumulateGrad& node, const TensorList& gradients, const std::optional<c10::Stream>& stream);
  void Distribute(const NodePtr& node, TensorList outputs, const std::optional<c10::Stream>& stream,
                  std::vector<ReadyNode>& heap);
  void Fail(Failure failure);

  const Options options;
  std::optional<at::ThreadLocalState> thread_state;
  std::atomic<bool> stopped{false};
  // Written while Reach() runs, only looked up in after that.
  std::unordered_map<Node*, NodeState> nodes;
  std::vector<NodePtr> entries;
  TensorList hooked;
  std::vector<Node*> python_nodes;
  std::once_flag lending;
  Loans loans;
  std::mutex mutex;  // guards `nodes` and what follows it meanwhile, and:
  size_t running = 0;  // arrivals; the loans end when none runs and the pass is stopped
  std::vector<LeafEntry> leaves;
  std::optional<Failure> failure;
};

Pass::Pass(Options options) : state_(std::make_unique<State>(std::move(options))) {}
Pass::~Pass() = default;

std::vector<Pass::Reached> Pass::Reach(const std::vector<Entry>& entries) {
  GraphWalk walk{state_->nodes, state_->hooked, state_->python_nodes, {}, {}, {}};
  const std::lock_guard lock(state_->mutex);
  for (const Entry& entry : entries) {
    state_->entries.push_back(entry.node);
    std::vector<bool>& used = state_->nodes[entry.node.get()].used;
    used.resize(entry.node->num_outputs());
    for (const uint32_t index : entry.tensors) {
      if (index >= used.size()) throw Error(ErrorCode::kInvalid, "a mark names a tensor that its message has not");
      if (used[index]) continue;
      used[index] = true;
      walk.Follow(entry.node->next_edge(index));
    }
  }
  while (!walk.left.empty()) {
    Node* node = walk.left.back();
    walk.left.pop_back();
    for (const Edge& edge : node->next_edges()) walk.Follow(edge);
  }
  return std::move(walk.found);
}

std::optional<Failure> Pass::Arrive(const NodePtr& entry, TensorList gradients) {
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->running;
  }
  try {
    std::call_once(state_->lending, [this] { state_->BeginLoans(); });
    std::optional<at::ThreadLocalStateGuard> guard;
    if (state_->thread_state) guard.emplace(*state_->thread_state);
    state_->Drive(entry, std::move(gradients));
  } catch (const Stopped&) {
  } catch (...) {  // from the engine itself, or a final callback
    state_->Fail(DescribeCaught(state_->options.describe));
  }
  const std::lock_guard lock(state_->mutex);
  if (--state_->running == 0 && state_->stopped) state_->loans.End();
  return state_->failure;
}

void Pass::Stop() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  if (state_->running == 0) state_->loans.End();
}

void Pass::State::BeginLoans() {
  if (hooked.empty() || stopped) return;
  loans.Begin({hooked, python_nodes, entries});
}

void Pass::State::Fail(Failure caught) {
  stopped = true;
  const std::lock_guard lock(mutex);
  if (!failure) failure = std::move(caught);
}

void Pass::State::Drive(const NodePtr& entry, TensorList gradients) {
  const auto loop = [&] { Execute([&] { Loop(entry, std::move(gradients)); }, false); };
  // Inside of a run with a choice of outputs, as torch.autograd.grad is one, a reentrant checkpoint refuses to run: its
  // pass of its own would put gradients into `.grad`. In that run itself our nodes would be found unneeded.
  python_nodes.empty() ? loop() : Execute(loop, true);
}

void Pass::State::Execute(std::function<void()> body, bool chooses_outputs) const {
  static const at::Tensor& token = *new at::Tensor(at::ones({}));  // the engine refuses an undefined root gradient
  auto driver = c10::make_intrusive<Driver>();
  driver->add_input_metadata(token);
  driver->body = std::move(body);
  torch::autograd::edge_list outputs;
  if (chooses_outputs) outputs.emplace_back(driver, 0);
  Engine::get_default_engine().execute({{driver, 0}}, {token}, options.retain_graph, false, true, outputs);
}

void Pass::State::Loop(const NodePtr& entry, TensorList gradients) {
  std::vector<ReadyNode> heap;
  try {
    torch::autograd::edge_list edges;
    for (uint32_t i = 0; i < entry->num_inputs(); ++i) edges.emplace_back(entry, i);
    torch::autograd::validate_outputs(edges, gradients, [](const std::string& text) { return "gradients: " + text; });
    heap.push_back({entry, InputBuffer(std::move(gradients))});
  } catch (...) {
    Fail(DescribeCaught(options.describe));
  }
  while (!heap.empty() && !stopped) {
    std::pop_heap(heap.begin(), heap.end());
    ReadyNode ready = std::move(heap.back());
    heap.pop_back();
    const NodePtr node = ready.node;
    try {
      Run(std::move(ready), heap);
    } catch (...) {
      Failure failure = DescribeCaught(options.describe);
      if (AnomalyMode::is_enabled()) node->metadata()->print_stack(node->name());
      Fail(std::move(failure));
    }
  }
  if (stopped) throw Stopped();
}

void Pass::State::Run(ReadyNode ready, std::vector<ReadyNode>& heap) {
  Node& node = *ready.node;
  const std::optional<c10::Stream> stream = node.stream();
  const c10::OptionalStreamGuard stream_guard(stream);
  if (stream) {
    for (size_t i = 0; i < ready.inputs.ready_events.size(); ++i) {
      const auto& event = ready.inputs.ready_events[i];
      if (event && ready.inputs.ready_streams[i] != stream) stream->wait(*event);
    }
  }
  TensorList inputs = std::move(ready.inputs.buffer);
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  for (const auto& [index, hook] : node.retains_grad_hooks()) inputs = (*hook)(inputs);
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);

  const bool has_post_hooks = !node.post_hooks().empty();
  TensorList outputs, kept;
  if (auto* leaf = dynamic_cast<AccumulateGrad*>(&node)) {
    kept = RunLeaf(*leaf, inputs, stream);
  } else if (auto* recv = dynamic_cast<RecvBackward*>(&node)) {
    if (has_post_hooks) kept = inputs;
    options.leave(*recv, recv->Collect(std::move(inputs)));
  } else {
    if (!options.retain_graph) node.will_release_variables();
    if (has_post_hooks) kept = inputs;
    outputs = node(std::move(inputs));
    if (!options.retain_graph) node.release_variables();
    torch::autograd::validate_outputs(node.next_edges(), outputs,
                                      [&](const std::string& text) { return node.name() + ": " + text; });
  }
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, kept);
  CheckForNan(node, outputs);
  Distribute(ready.node, std::move(outputs), stream, heap);
}

TensorList Pass::State::RunLeaf(AccumulateGrad& node, const TensorList& gradients,
                                const std::optional<c10::Stream>& stream) {
  if (!gradients.empty() && gradients[0].defined() && loans.Holds(node.variable)) {
    at::Tensor sum = node.variable.grad();
    AddGradient(node.variable, sum, gradients[0], 1);
    node.variable.mutable_grad() = std::move(sum);
  } else if (!gradients.empty() && gradients[0].defined()) {
    LeafEntry entry{.leaf = node.variable, .gradient = gradients[0], .sum = {}, .stream = stream};
    if (!node.post_hooks().empty()) AddGradient(entry.leaf, entry.sum, entry.gradient, 2);
    const std::lock_guard lock(mutex);
    leaves.push_back(std::move(entry));
  }
  return gradients;
}

void Pass::State::Distribute(const NodePtr& node, TensorList outputs, const std::optional<c10::Stream>& stream,
                             std::vector<ReadyNode>& heap) {
  const auto* const entry = dynamic_cast<const SendBackward*>(node.get());
  const std::vector<bool>* const used = entry ? &nodes.at(node.get()).used : nullptr;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Edge& edge = node->next_edge(i);
    if (!edge.is_valid() || (used && !(*used)[i])) continue;
    NodeState& next = nodes.at(edge.function.get());
    const std::lock_guard lock(next.mutex);
    if (!next.inputs) next.inputs.emplace(edge.function->num_inputs());
    next.inputs->add(edge.input_nr, std::move(outputs[i]), stream, edge.function->stream(), edge.function.get());
    if (--next.missing > 0) continue;
    heap.push_back({edge.function, std::move(*next.inputs)});
    std::push_heap(heap.begin(), heap.end());
    next.inputs.reset();
  }
}

std::vector<LeafGradient> Pass::Finish() {
  const c10::AutoGradMode no_grad(false);
  std::vector<LeafEntry> leaves;
  {
    const std::lock_guard lock(state_->mutex);
    leaves.swap(state_->leaves);
  }
  std::vector<LeafGradient> result = state_->loans.TakeBack();
  state_->loans.End();
  result.reserve(result.size() + leaves.size());
  for (LeafEntry& entry : leaves) {
    const c10::OptionalStreamGuard stream_guard(entry.stream);
    if (!entry.sum.defined()) AddGradient(entry.leaf, entry.sum, entry.gradient, 1);
    result.push_back({entry.leaf, entry.sum});
  }
  return result;
}

bool HasPostAccumulateHooks(const at::Tensor& leaf) {
  return torch::autograd::impl::post_acc_grad_hooks(leaf) != nullptr;
}

std::optional<Failure> RunPostAccumulateHooks(const at::Tensor& leaf, const Describe& describe) {
  const c10::AutoGradMode no_grad(false);
  try {
    if (const auto& hooks = torch::autograd::impl::post_acc_grad_hooks(leaf)) (*hooks)(leaf);
    return std::nullopt;
  } catch (...) {
    return DescribeCaught(describe);
  }
}

void AddGradient(const at::Tensor& leaf, at::Tensor& sum, const at::Tensor& gradient, size_t holders) {
  // libtorch looks at the tensor alone before it takes one over, as it runs leaves first. Here gradients are held until
  // the end, when a view of this one, or what came beside it in one message, may be another leaf's.
  if (gradient.has_storage() && gradient.storage().use_count() > 1) holders = 0;
  AccumulateGrad::accumulateGrad(leaf, sum, gradient, holders, [&](at::Tensor&& updated) { sum = std::move(updated); });
}

}  // namespace gradwire::autograd
