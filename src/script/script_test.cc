#include "gradwire/script.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <map>
#include <optional>

#include "base/test_failure.h"
#include "gradwire/value.h"
#include "rpc/function_entry.h"
#include "rpc/test_call.h"

namespace gradwire {
namespace {

namespace jit = torch::jit;

constexpr const char* kSource = R"(
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by

def fail(x: Tensor) -> Tensor:
    assert x.numel() < 0, "no good"
    return x

def both(x: Dict[str, List[int]]) -> Tuple[int, Optional[str]]:
    return (len(x["a"]), None)
)";

class Script : public testing::Test {
 protected:
  Script() { AddScriptFunctions(functions, Unit()); }

  static std::shared_ptr<jit::CompilationUnit> Unit() {
    auto unit = std::make_shared<jit::CompilationUnit>();
    unit->define(c10::QualifiedName("model"), kSource, jit::nativeResolver(), nullptr);
    return unit;
  }

  std::shared_ptr<LocalCall> Call(const std::string& function, Payload args) {
    auto call = std::make_shared<LocalCall>(function, std::move(args));
    functions.Find(function)->handler(call);
    return call;
  }

  Failure FailureOfCall(const std::string& function, Payload args) {
    return FailureOf([&] { Call(function, std::move(args)); });
  }

  Functions functions;
};

TEST_F(Script, RunsAFunctionByItsQualifiedName) {
  const auto call = Call(ScriptFunction("model.scale"), EncodeValue(std::tuple(at::ones({2}), 3.0)));
  EXPECT_TRUE(DecodeValue<at::Tensor>(call->Answer()).equal(at::full({2}, 3.0)));
}

TEST_F(Script, FillsInDefaultsOfArgumentsLeftOut) {
  const auto call = Call(ScriptFunction("model.scale"), EncodeValue(std::tuple(at::ones({2}))));
  EXPECT_TRUE(DecodeValue<at::Tensor>(call->Answer()).equal(at::full({2}, 2.0)));
}

TEST_F(Script, TakesAndReturnsContainers) {
  const std::map<std::string, std::vector<int64_t>> given{{"a", {1, 2, 3}}};
  const auto call = Call(ScriptFunction("model.both"), EncodeValue(std::tuple(given)));
  using Result = std::tuple<int64_t, std::optional<std::string>>;
  EXPECT_EQ(DecodeValue<Result>(call->Answer()), Result(3, std::nullopt));
}

TEST_F(Script, SaysWhatAScriptHasThrown) {
  const Failure failure = FailureOfCall(ScriptFunction("model.fail"), EncodeValue(std::tuple(at::ones({2}))));
  EXPECT_EQ(failure.code, ErrorCode::kRemote);
  EXPECT_NE(failure.text.find("no good"), std::string::npos) << failure.text;
}

TEST_F(Script, RefusesWhatItsSchemaDoesNotTake) {
  const std::string scale = ScriptFunction("model.scale");
  EXPECT_EQ(FailureOfCall(scale, EncodeValue(std::tuple(1))).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOfCall(scale, EncodeValue(std::tuple<>())).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOfCall(scale, EncodeValue(std::tuple(at::ones({1}), 1.0, 2))).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOfCall(ScriptFunction("model.none"), {}).code, ErrorCode::kUnknownFunction);
  const Failure failure = FailureOfCall(AsyncScriptFunction("model.scale"), EncodeValue(std::tuple(at::ones({2}))));
  EXPECT_EQ(failure.text, "Async functions must return an IValue of Future type, but got Tensor");
}

TEST_F(Script, ServesTheMethodsOfAModule) {
  jit::Module module("Counter");
  module.register_parameter("weight", at::full({2}, 5.0), false);
  module.define("def forward(self, x: Tensor, times: int = 1) -> Tensor:\n    return self.weight * x * times\n");
  AddScriptModule(functions, "counter", module);
  const auto call = Call(ScriptFunction("counter.forward"), EncodeValue(std::tuple(at::ones({2}))));
  EXPECT_TRUE(DecodeValue<at::Tensor>(call->Answer()).equal(at::full({2}, 5.0)));
  EXPECT_THROW(AddScriptModule(functions, "counter", module), Error);
}

TEST_F(Script, ServesNoMethodOfAModuleWhenOneOfTheNamesIsTaken) {
  jit::Module module("Pair");
  module.define("def forward(self, x: Tensor) -> Tensor:\n    return x\n");
  module.define("def backward(self, x: Tensor) -> Tensor:\n    return -x\n");
  for (const auto& [taken, other] : {std::pair("forward", "backward"), std::pair("backward", "forward")}) {
    const std::string name = std::string("pair_") + taken + ".";
    functions.AddHandler(ScriptFunction(name + taken), [](const std::shared_ptr<IncomingCall>&) {});
    EXPECT_THROW(AddScriptModule(functions, std::string("pair_") + taken, module), Error);
    functions.AddHandler(ScriptFunction(name + other), [](const std::shared_ptr<IncomingCall>&) {});
  }
}

}  // namespace
}  // namespace gradwire
