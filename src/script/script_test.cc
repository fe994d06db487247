#include "gradwire/script.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <future>
#include <map>
#include <optional>

#include "gradwire/value.h"
#include "rpc/function_entry.h"

namespace gradwire {
namespace {

namespace jit = torch::jit;

// A call without a wire: what is answered stays here.
class LocalCall final : public IncomingCall {
 public:
  LocalCall(std::string function, Payload args) : function_(std::move(function)), args_(std::move(args)) {}

  const WorkerInfo& caller() const override { return caller_; }
  const std::string& function() const override { return function_; }
  Payload& args() override { return args_; }
  bool keeps_result() const override { return false; }
  bool cancelled() const override { return false; }
  void Reply(Payload value) override { answer_.set_value(std::move(value)); }
  void Fail(Failure failure) override { throw Error(std::move(failure)); }
  std::shared_ptr<void> Enter() override { return nullptr; }
  void Resume(UniqueFunction<void()> answer) override { answer(); }
  void Post(UniqueFunction<void()> answer) override { answer(); }

  Payload Answer() { return answer_.get_future().get(); }

 private:
  std::promise<Payload> answer_;
  const WorkerInfo caller_{"caller", 0};
  const std::string function_;
  Payload args_;
};

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

  Failure FailureOf(const std::string& function, Payload args) {
    try {
      Call(function, std::move(args));
    } catch (const Error& error) {
      return error.failure();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
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
  const Failure failure = FailureOf(ScriptFunction("model.fail"), EncodeValue(std::tuple(at::ones({2}))));
  EXPECT_EQ(failure.code, ErrorCode::kRemote);
  EXPECT_NE(failure.text.find("no good"), std::string::npos) << failure.text;
}

TEST_F(Script, RefusesWhatItsSchemaDoesNotTake) {
  const std::string scale = ScriptFunction("model.scale");
  EXPECT_EQ(FailureOf(scale, EncodeValue(std::tuple(1))).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOf(scale, EncodeValue(std::tuple<>())).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOf(scale, EncodeValue(std::tuple(at::ones({1}), 1.0, 2))).code, ErrorCode::kInvalid);
  EXPECT_EQ(FailureOf(ScriptFunction("model.none"), {}).code, ErrorCode::kUnknownFunction);
  const Failure failure = FailureOf(AsyncScriptFunction("model.scale"), EncodeValue(std::tuple(at::ones({2}))));
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
