#include "ops/operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <typeinfo>

#include "gradwire/value.h"
#include "wire/ivalue.h"

namespace gradwire::ops {
namespace {

using Stack = std::vector<c10::IValue>;

// An operator that can be run: of the dispatcher, or of TorchScript's own.
struct Runnable {
  const c10::FunctionSchema* schema = nullptr;
  std::function<void(Stack&)> run;
};

c10::OperatorName NameOf(const std::string& function) {
  const std::string_view rest = std::string_view(function).substr(std::strlen(kOperatorPrefix));
  const size_t dot = rest.find('.');
  c10::OperatorName name("aten::" + std::string(rest.substr(0, dot)), "");
  if (dot != std::string_view::npos) name.overload_name = rest.substr(dot + 1);
  return name;
}

Runnable FindOperator(const std::string& function) {
  const c10::OperatorName name = NameOf(function);
  if (auto handle = c10::Dispatcher::singleton().findSchema(name)) {
    return {&handle->schema(), [handle = *handle](Stack& stack) { handle.callBoxed(&stack); }};
  }
  if (auto found = torch::jit::findOperatorFor(name)) {
    return {&found->schema(), [found](Stack& stack) { found->getOperation()(stack); }};
  }
  throw Error(ErrorCode::kUnknownFunction, "libtorch has no operator named '" + c10::toString(name) + "'");
}

Stack ReadArguments(const Payload& args, const c10::FunctionSchema& schema) {
  ValueReader reader(args);
  const size_t count = reader.BeginTuple();
  if (count != schema.arguments().size()) {
    throw Error(ErrorCode::kInvalid, schema.name() + " takes " + std::to_string(schema.arguments().size()) +
                                         " arguments, not " + std::to_string(count));
  }
  Stack stack;
  stack.reserve(count);
  for (const c10::Argument& argument : schema.arguments()) {
    stack.push_back(wire::ReadIValue(reader, *argument.real_type()));
  }
  reader.End();
  return stack;
}

Payload EncodeResult(const Stack& stack) {
  Payload payload;
  ValueWriter writer(payload);
  if (stack.empty()) {
    writer.PutNone();
  } else if (stack.size() == 1) {
    wire::WriteIValue(writer, stack[0]);
  } else {
    writer.BeginTuple(stack.size());
    for (const c10::IValue& value : stack) wire::WriteIValue(writer, value);
  }
  return payload;
}

// libtorch's own text carries a stack trace of C++ that means nothing to a caller.
Failure Describe(const c10::Error& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  Failure failure{.code = ErrorCode::kRemote, .text = error.what_without_backtrace(), .type_name = name ? name : ""};
  std::free(name);
  return failure;
}

void RunOperator(const std::shared_ptr<IncomingCall>& call) {
  const Runnable found = FindOperator(call->function());
  Stack stack = ReadArguments(call->args(), *found.schema);
  try {
    found.run(stack);
  } catch (const c10::Error& error) {
    throw Error(Describe(error));
  }
  call->Reply(EncodeResult(stack));
}

constexpr int64_t kFewElements = 1024;

// Their work grows with the elements of their arguments (of two, with the product when they are broadcast).
constexpr std::array<std::string_view, 32> kCheap = {
    "abs", "add", "add_", "clone",   "cos", "detach", "div",  "dot", "eq",  "exp",  "ge",
    "gt",  "le",  "log",  "lt",      "max", "mean",   "min",  "mm",  "mul", "mul_", "mv",
    "ne",  "neg", "relu", "sigmoid", "sin", "size",   "sqrt", "sub", "sum", "tanh",
};
static_assert(std::is_sorted(kCheap.begin(), kCheap.end()));

}  // namespace

bool IsShort(const std::string& function, const Payload& args) {
  std::string_view name = std::string_view(function).substr(std::strlen(kOperatorPrefix));
  name = name.substr(0, name.find('.'));
  if (!std::binary_search(kCheap.begin(), kCheap.end(), name)) return false;
  if (args.tensors.empty()) return false;  // [0] * n is a `mul` whose work no argument's size tells
  int64_t elements = 0;
  for (const at::Tensor& tensor : args.tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.device().is_cpu() || tensor.layout() != c10::kStrided) return false;
    if (tensor.numel() > kFewElements) return false;
    elements += tensor.numel();
  }
  return elements <= kFewElements;
}

void RegisterOperators(Functions& functions) {
  FunctionOptions options;
  options.is_short = true;
  options.is_short_for = IsShort;
  functions.AddFamily(kOperatorPrefix, RunOperator, options);
}

}  // namespace gradwire::ops

namespace gradwire {

std::string OperatorFunction(const std::string& name, const std::string& overload) {
  constexpr std::string_view kNamespace = "aten::";
  if (name.compare(0, kNamespace.size(), kNamespace) != 0) return "";
  std::string function = kOperatorPrefix + name.substr(kNamespace.size());
  if (!overload.empty()) function += "." + overload;
  return function;
}

Payload EncodeOperatorArguments(const std::vector<c10::IValue>& arguments) {
  Payload payload;
  ValueWriter writer(payload);
  writer.BeginTuple(arguments.size());
  for (const c10::IValue& argument : arguments) wire::WriteIValue(writer, argument);
  return payload;
}

}  // namespace gradwire
