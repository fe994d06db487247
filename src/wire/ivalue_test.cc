#include "wire/ivalue.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "gradwire/error.h"

namespace gradwire::wire {
namespace {

using c10::IValue;

IValue ThereAndBack(const IValue& value, const c10::Type& type) {
  Payload payload;
  ValueWriter writer(payload);
  WriteIValue(writer, value);
  ValueReader reader(payload);
  IValue got = ReadIValue(reader, type);
  EXPECT_TRUE(reader.AtEnd());
  return got;
}

std::string InvalidText(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(IValue, EveryKindComesBackAsItsTypeSays) {
  const auto tensors = c10::List<at::Tensor>({at::ones({2}), at::ones({3})});
  c10::List<std::optional<at::Tensor>> maybe_tensors;
  maybe_tensors.push_back(at::ones({2}));
  maybe_tensors.push_back(std::nullopt);
  c10::Dict<std::string, int64_t> dict;
  dict.insert("a", 1);
  const auto int_type = c10::IntType::get();
  const std::vector<std::pair<IValue, c10::TypePtr>> cases = {
      {7, int_type},
      {7, c10::SymIntType::get()},
      {static_cast<int64_t>(at::kHalf), c10::ScalarTypeType::get()},
      {2.5, c10::FloatType::get()},
      {c10::complex<double>(1, -2), c10::ComplexType::get()},
      {true, c10::BoolType::get()},
      {7, c10::NumberType::get()},
      {2.5, c10::NumberType::get()},
      {false, c10::NumberType::get()},
      {c10::complex<double>(0, 1), c10::NumberType::get()},
      {"text", c10::StringType::get()},
      {c10::Device("cuda:1"), c10::DeviceObjType::get()},
      {IValue(), c10::NoneType::get()},
      {IValue(), c10::OptionalType::create(int_type)},
      {5, c10::OptionalType::create(int_type)},
      {c10::List<int64_t>({1, 2, 3}), c10::ListType::ofInts()},
      {c10::List<int64_t>({1, 2}), c10::ListType::create(c10::SymIntType::get())},
      {c10::List<double>({1.5}), c10::ListType::ofFloats()},
      {c10::List<bool>({true, false}), c10::ListType::ofBools()},
      {c10::List<std::string>({"a", "b"}), c10::ListType::ofStrings()},
      {c10::List<int64_t>(), c10::OptionalType::create(c10::ListType::ofInts())},
      {dict, c10::DictType::create(c10::StringType::get(), int_type)},
      {c10::ivalue::Tuple::create({IValue(1), IValue("b"), c10::ivalue::Tuple::create({})}),
       c10::TupleType::create({int_type, c10::StringType::get(), c10::TupleType::create({})})},
  };
  for (const auto& [value, type] : cases) {
    SCOPED_TRACE(type->str());
    const IValue got = ThereAndBack(value, *type);
    EXPECT_EQ(got, value);
    if (value.isList()) {
      EXPECT_EQ(*got.toList().elementType(), *value.toList().elementType());
    }
  }
  EXPECT_TRUE(ThereAndBack(tensors, *c10::ListType::ofTensors()).isTensorList());
  const IValue got = ThereAndBack(maybe_tensors, *c10::ListType::create(c10::OptionalType::ofTensor()));
  EXPECT_TRUE(got.toListRef()[0].isTensor());
  EXPECT_TRUE(got.toListRef()[1].isNone());
  EXPECT_FALSE(ThereAndBack(at::Tensor(), *c10::TensorType::get()).toTensor().defined());
}

TEST(IValue, AnyIsReadByItsTags) {
  const IValue value = c10::ivalue::Tuple::create({IValue(1), IValue(2.5), IValue("c"), IValue(), IValue(true)});
  EXPECT_EQ(ThereAndBack(value, *c10::AnyType::get()), value);
}

TEST(IValue, ASchemaOfTheDispatcherReadsItsArguments) {
  const auto schema = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor").schema();
  const std::vector<IValue> stack = {at::ones({2}), at::ones({2}), 2};
  for (size_t i = 0; i < stack.size(); ++i) {
    const IValue got = ThereAndBack(stack[i], *schema.arguments()[i].type());
    EXPECT_EQ(got.tagKind(), stack[i].tagKind());
  }
}

TEST(IValue, AnotherValueOrTypeIsRefusedByName) {
  EXPECT_EQ(InvalidText([] { ThereAndBack("x", *c10::IntType::get()); }), "expected an int, got a string");
  EXPECT_EQ(InvalidText([] { ThereAndBack(7, *c10::GeneratorType::get()); }),
            "a value of type Generator cannot travel");
  EXPECT_EQ(InvalidText([] { ThereAndBack(c10::Stream(c10::Stream::DEFAULT, at::kCPU), *c10::AnyType::get()); }),
            "a value of kind Stream cannot travel");
  Payload payload;
  ValueWriter(payload).PutDevice("nonsense:1");
  InvalidText([&] {
    ValueReader reader(payload);
    ReadIValue(reader, *c10::DeviceObjType::get());
  });
}

TEST(IValue, DepthIsLimitedOnBothSides) {
  IValue deep;
  for (int i = 0; i < ValueReader::kMaxDepth + 1; ++i) deep = c10::ivalue::Tuple::create({deep});
  InvalidText([&] { ThereAndBack(deep, *c10::AnyType::get()); });
  EXPECT_TRUE(ThereAndBack(deep.toTupleRef().elements()[0], *c10::AnyType::get()).isTuple());
}

}  // namespace
}  // namespace gradwire::wire
