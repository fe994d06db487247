#include "ops/operators.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gradwire/value.h"
#include "rpc/function_entry.h"
#include "rpc/test_call.h"

namespace gradwire::ops {
namespace {

Payload Answer(const std::string& function, const std::vector<c10::IValue>& arguments) {
  Functions functions;
  RegisterOperators(functions);
  auto call = std::make_shared<LocalCall>(function, EncodeOperatorArguments(arguments));
  functions.Find(function)->handler(call);
  return call->Answer();
}

TEST(Operators, RunsAnOverloadByName) {
  const Payload sum = Answer("aten.add.Tensor", {at::ones({2}), at::ones({2}), 3});
  EXPECT_TRUE(DecodeValue<at::Tensor>(sum).equal(at::full({2}, 4.0)));
}

TEST(Operators, RunsAnOverloadWithoutAName) {
  EXPECT_TRUE(DecodeValue<at::Tensor>(Answer("aten.mm", {at::eye(2), at::eye(2)})).equal(at::eye(2)));
}

TEST(Operators, ReturnsSeveralResultsAsATuple) {
  const Payload both = Answer("aten.max.dim", {at::arange(4), 0, false});
  const auto [value, index] = DecodeValue<std::tuple<at::Tensor, at::Tensor>>(both);
  EXPECT_EQ(value.item<int64_t>(), 3);
  EXPECT_EQ(index.item<int64_t>(), 3);
}

TEST(Operators, ReturnsAListAsAList) {
  const Payload parts = Answer("aten.split.Tensor", {at::arange(4), 3, 0});
  EXPECT_EQ(DecodeValue<std::vector<at::Tensor>>(parts).size(), 2u);
}

TEST(Operators, RunsAnOperatorOfTorchScriptAlone) {
  EXPECT_EQ(DecodeValue<int64_t>(Answer("aten.add.int", {2, 3})), 5);
}

TEST(Operators, RefusesAnUnknownOne) {
  try {
    Answer("aten.no_such_operator", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnknownFunction);
  }
}

TEST(Operators, RefusesTheWrongNumberOfArguments) { EXPECT_THROW(Answer("aten.add.Tensor", {at::ones({2})}), Error); }

TEST(Operators, TellsTheOperatorsOwnErrorWithoutStackTrace) {
  try {
    Answer("aten.add.Tensor", {at::ones({2}), at::ones({3}), 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRemote);
    EXPECT_EQ(error.failure().type_name, "c10::Error");
    EXPECT_NE(error.failure().text.find("size of tensor"), std::string::npos);
    EXPECT_EQ(error.failure().text.find("frame #"), std::string::npos);
  }
}

// O2: what may take long does not run under the read role.
TEST(Operators, AreShortOnlyWhenCheapAndSmall) {
  const Payload few = EncodeOperatorArguments({at::ones({2}), at::ones({2}), 1});
  const Payload many = EncodeOperatorArguments({at::ones({2000}), at::ones({2}), 1});
  EXPECT_TRUE(IsShort("aten.add.Tensor", few));
  EXPECT_FALSE(IsShort("aten.add.Tensor", many));
  EXPECT_FALSE(IsShort("aten.repeat", few));
  EXPECT_FALSE(IsShort("aten.mul.left_t", EncodeOperatorArguments({c10::List<int64_t>({0}), int64_t{1} << 30})));
  EXPECT_FALSE(IsShort("aten.ones", EncodeOperatorArguments({})));
  Functions functions;
  RegisterOperators(functions);
  const auto entry = functions.Find("aten.add.Tensor");
  EXPECT_TRUE(entry->RunsInline("aten.add.Tensor", few));
  EXPECT_FALSE(entry->RunsInline("aten.add.Tensor", many));
}

TEST(Operators, OnlyKnowsItsNamespace) {
  EXPECT_EQ(OperatorFunction("aten::add", "Tensor"), "aten.add.Tensor");
  EXPECT_EQ(OperatorFunction("aten::mm", ""), "aten.mm");
  EXPECT_EQ(OperatorFunction("mine::add", ""), "");
}

}  // namespace
}  // namespace gradwire::ops
