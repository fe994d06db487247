#include "gradwire/script.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradwire/ivalue.h"
#include "gradwire/value.h"
#include "wire/ivalue.h"

namespace gradwire {
namespace {

namespace jit = torch::jit;
using jit::Stack;
using IValueFuture = c10::intrusive_ptr<c10::ivalue::Future>;
using Call = std::shared_ptr<IncomingCall>;

constexpr const char* kPrefix = "script.";
constexpr const char* kAsyncPrefix = "script_async.";

// Appends the call's arguments to a stack that may hold the module already.
void ReadArguments(const Payload& args, const c10::FunctionSchema& schema, Stack& stack) {
  const std::vector<c10::Argument>& wanted = schema.arguments();
  const size_t bound = stack.size();
  ValueReader reader(args);
  const size_t count = reader.BeginTuple();
  if (count > wanted.size() - bound) {
    throw Error(ErrorCode::kInvalid, schema.name() + "() takes at most " + std::to_string(wanted.size() - bound) +
                                         " arguments, not " + std::to_string(count));
  }
  for (size_t i = bound; i < bound + count; ++i) {
    stack.push_back(wire::ReadIValue(reader, *wanted[i].real_type()));
  }
  reader.End();
  for (size_t i = bound + count; i < wanted.size(); ++i) {
    if (!wanted[i].default_value()) {
      throw Error(ErrorCode::kInvalid, schema.name() + "() lacks a value for its argument '" + wanted[i].name() + "'");
    }
    stack.push_back(*wanted[i].default_value());
  }
}

// Throws what has failed the future, with its text alone: a trace of C++ means nothing to a caller.
const c10::IValue& ValueOf(c10::ivalue::Future& done) {
  if (!done.hasError()) return done.constValue();
  Failure failure{.code = ErrorCode::kRemote, .type_name = "torch::jit::JITException"};
  try {
    std::rethrow_exception(done.exception_ptr());
  } catch (const Error& error) {
    failure = error.failure();
  } catch (const c10::Error& error) {
    failure.text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure.text = error.what();
  }
  throw Error(std::move(failure));
}

// Calls `use` with the future once it is done: now, if it is done already, else on a pool thread. What it throws fails
// the call.
template <class F>
void WhenDone(const Call& call, const IValueFuture& future, F use) {
  if (future->completed()) return use(*future);
  future->addCallback([call, use](c10::ivalue::Future& done) {
    const auto self = IValueFuture::unsafe_reclaim_from_nonowning(&done);
    call->Post([self, use]() mutable { use(*self); });
  });
}

void Reply(const Call& call, c10::ivalue::Future& done) { call->Reply(EncodeIValue(ValueOf(done))); }

void ReplyWhenInnerDone(const Call& call, c10::ivalue::Future& done) {
  const c10::IValue& value = ValueOf(done);
  if (!value.isFuture()) {
    throw Error(ErrorCode::kRemote, "Async functions must return an IValue of Future type, but got " + value.tagKind());
  }
  WhenDone(call, value.toFuture(), [call](c10::ivalue::Future& inner) { Reply(call, inner); });
}

// No thread waits: a script that waits for a future of its own is suspended.
void Run(const Call& call, jit::Function& function, Stack stack, bool asynchronous) {
  ReadArguments(call->args(), function.getSchema(), stack);
  WhenDone(call, function.runAsync(stack), [call, asynchronous](c10::ivalue::Future& done) {
    asynchronous ? ReplyWhenInnerDone(call, done) : Reply(call, done);
  });
}

// The functions that have been found. Callers name them: those that are not there are not remembered.
class Found {
 public:
  explicit Found(ScriptFinder find) : find_(std::move(find)) {}

  jit::Function& Get(const std::string& name) {
    {
      const std::lock_guard lock(mutex_);
      if (auto it = functions_.find(name); it != functions_.end()) return *it->second;
    }
    jit::Function* const function = find_(name);  // may take the GIL
    if (!function) throw Error(ErrorCode::kUnknownFunction, "no script function named '" + name + "' is here");
    const std::lock_guard lock(mutex_);
    functions_[name] = function;
    return *function;
  }

 private:
  const ScriptFinder find_;
  std::mutex mutex_;
  std::unordered_map<std::string, jit::Function*> functions_;
};

}  // namespace

std::string ScriptFunction(const std::string& qualified_name) { return kPrefix + qualified_name; }
std::string AsyncScriptFunction(const std::string& qualified_name) { return kAsyncPrefix + qualified_name; }

void AddScriptFunctions(Functions& functions, ScriptFinder find) {
  const auto found = std::make_shared<Found>(std::move(find));
  for (const bool asynchronous : {false, true}) {
    const std::string prefix = asynchronous ? kAsyncPrefix : kPrefix;
    functions.AddFamily(prefix, [found, asynchronous, skip = prefix.size()](const Call& call) {
      Run(call, found->Get(call->function().substr(skip)), {}, asynchronous);
    });
  }
}

void AddScriptFunctions(Functions& functions, std::shared_ptr<jit::CompilationUnit> unit) {
  AddScriptFunctions(functions, [unit = std::move(unit)](const std::string& name) -> jit::Function* {
    return unit->find_function(c10::QualifiedName(name));
  });
}

void AddScriptModule(Functions& functions, const std::string& name, const jit::Module& module) {
  std::vector<std::string> added;
  try {
    for (const jit::Method& method : module.get_methods()) {
      const std::string function = ScriptFunction(name + "." + method.name());
      functions.AddHandler(
          function, [method](const Call& call) { Run(call, method.function(), {method.owner()._ivalue()}, false); });
      added.push_back(function);
    }
  } catch (const Error&) {  // all of its methods or none
    for (const std::string& function : added) functions.Remove(function);
    throw;
  }
}

}  // namespace gradwire
