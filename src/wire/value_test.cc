#include "gradwire/value.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <limits>

#include "gradwire/error.h"

namespace gradwire {
namespace {

class Handle : public Reference {};

template <class F>
std::string InvalidText(F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

template <class T>
void ExpectRoundTrip(const T& value) {
  EXPECT_EQ(DecodeValue<T>(EncodeValue(value)), value);
}

TEST(Value, CppTypesComeBackAsTheyWere) {
  ExpectRoundTrip(true);
  ExpectRoundTrip(false);
  ExpectRoundTrip<int64_t>(std::numeric_limits<int64_t>::min());
  ExpectRoundTrip<uint8_t>(255);
  ExpectRoundTrip(0.1);
  ExpectRoundTrip(1.5f);
  ExpectRoundTrip(std::numeric_limits<double>::infinity());
  ExpectRoundTrip(std::string("with \0 inside", 13));
  ExpectRoundTrip(std::optional<int>());
  ExpectRoundTrip(std::optional<int>(7));
  ExpectRoundTrip(std::vector<std::string>{"a", "", "c"});
  ExpectRoundTrip(std::map<std::string, std::vector<double>>{{"x", {1, 2}}, {"y", {}}});
  ExpectRoundTrip(std::tuple<int, std::string, bool>{1, "two", true});
  ExpectRoundTrip(std::pair<std::tuple<>, std::vector<std::pair<int, int>>>{{}, {{1, 2}}});
}

TEST(Value, TensorsGoBesideTheBytes) {
  const at::Tensor ones = at::ones({2});
  const Payload payload = EncodeValue(std::vector<at::Tensor>{ones, at::Tensor(), ones});
  ASSERT_EQ(payload.tensors.size(), 2u);
  const auto back = DecodeValue<std::vector<at::Tensor>>(payload);
  EXPECT_TRUE(back[0].is_same(ones));
  EXPECT_FALSE(back[1].defined());
  EXPECT_TRUE(back[2].is_same(ones));
}

TEST(Value, EveryTagIsReadByItsOwnGet) {
  Payload payload;
  ValueWriter writer(payload);
  writer.BeginTuple(10);
  writer.PutNone();
  writer.PutBool(true);
  writer.PutInt(-5);
  writer.PutDouble(2.5);
  writer.PutComplex(1, -1);
  writer.PutString("text");
  writer.PutBytes("\x01\x02");
  writer.PutDevice("cuda:1");
  writer.PutPickle("pickled");
  writer.BeginDict(1);
  writer.PutTensor(at::ones({}), /*parameter=*/true);
  const auto handle = std::make_shared<Handle>();
  writer.PutReference(handle);

  ValueReader reader(payload);
  EXPECT_EQ(reader.BeginTuple(), 10u);
  reader.GetNone();
  EXPECT_TRUE(reader.GetBool());
  EXPECT_EQ(reader.GetInt(), -5);
  EXPECT_EQ(reader.GetDouble(), 2.5);
  EXPECT_EQ(reader.GetComplex(), (std::pair{1.0, -1.0}));
  EXPECT_EQ(reader.GetString(), "text");
  EXPECT_EQ(reader.GetBytes(), "\x01\x02");
  EXPECT_EQ(reader.GetDevice(), "cuda:1");
  EXPECT_EQ(reader.GetPickle(), "pickled");
  EXPECT_EQ(reader.BeginDict(), 1u);
  EXPECT_EQ(reader.Peek(), ValueTag::kParameter);
  EXPECT_TRUE(reader.GetTensor().defined());
  EXPECT_EQ(reader.GetReference(), handle);
  reader.End();
  reader.End();
  EXPECT_TRUE(reader.AtEnd());
}

TEST(Value, AnotherTypeIsRefusedByName) {
  const Payload text = EncodeValue(std::string("x"));
  EXPECT_EQ(InvalidText([&] { DecodeValue<int>(text); }), "expected an int, got a string");
  EXPECT_EQ(InvalidText([&] { DecodeValue<bool>(text); }), "expected a bool, got a string");
  EXPECT_EQ(InvalidText([&] { DecodeValue<double>(text); }), "expected a float, got a string");
  EXPECT_EQ(InvalidText([&] { DecodeValue<std::vector<int>>(text); }), "expected a tuple or a list, got a string");
  EXPECT_EQ(InvalidText([&] { DecodeValue<at::Tensor>(text); }), "expected a tensor, got a string");
  EXPECT_EQ(InvalidText([] { DecodeValue<std::tuple<int, int>>(EncodeValue(std::tuple<int>(1))); }),
            "expected 2 values, got 1");
}

TEST(Value, AnIntegerOutOfRangeIsRefused) {
  EXPECT_EQ(InvalidText([] { DecodeValue<uint8_t>(EncodeValue<int>(256)); }),
            "256 is out of the range of the wanted integer type");
  InvalidText([] { DecodeValue<uint64_t>(EncodeValue<int>(-1)); });
}

TEST(Value, AnIntServesWhereAFloatIsWanted) { EXPECT_EQ(DecodeValue<double>(EncodeValue<int>(3)), 3.0); }

TEST(Value, TruncatedBytesAreRefused) {
  const Payload whole =
      EncodeValue(std::tuple<int, double, std::string, std::vector<bool>>{1, 2, "three", {true, false}});
  for (size_t size = 0; size < whole.bytes.size(); ++size) {
    Payload part;
    part.bytes = whole.bytes.substr(0, size);
    InvalidText([&] { DecodeValue<std::tuple<int, double, std::string, std::vector<bool>>>(part); });
  }
}

TEST(Value, CountsAndIndicesAreCheckedBeforeUse) {
  Payload payload;
  payload.bytes = std::string("L\xff\xff\xff\xff", 5);
  InvalidText([&] { ValueReader(payload).BeginList(); });
  payload.bytes = std::string("D\x02\0\0\0NNN", 8);  // two pairs need four values
  InvalidText([&] { ValueReader(payload).BeginDict(); });
  payload.bytes = std::string("s\xff\xff\xff\xff", 5);
  InvalidText([&] { ValueReader(payload).GetString(); });
  payload.bytes = std::string("t\0\0\0\0", 5);
  EXPECT_EQ(InvalidText([&] { ValueReader(payload).GetTensor(); }), "tensor 0 of 0 is named");
  payload.bytes = std::string("r\0\0\0\0", 5);
  InvalidText([&] { ValueReader(payload).GetReference(); });
  payload.bytes = "?";
  InvalidText([&] { ValueReader(payload).GetInt(); });
}

TEST(Value, DepthIsLimited) {
  Payload payload;
  ValueWriter writer(payload);
  for (int i = 0; i <= ValueReader::kMaxDepth; ++i) writer.BeginList(1);
  writer.PutNone();
  ValueReader reader(payload);
  for (int i = 0; i < ValueReader::kMaxDepth; ++i) reader.BeginList();
  InvalidText([&] { reader.BeginList(); });
}

}  // namespace
}  // namespace gradwire
