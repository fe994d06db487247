#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rpc/function_entry.h"

namespace gradwire {
namespace {

void Ignore(const std::shared_ptr<IncomingCall>&) {}

TEST(Functions, FindsWhatWasAddedAndNothingElse) {
  Functions functions;
  functions.AddHandler("a", Ignore, {.is_short = true});
  ASSERT_NE(functions.Find("a"), nullptr);
  EXPECT_TRUE(functions.Find("a")->is_short);
  EXPECT_EQ(functions.Find("b"), nullptr);
}

TEST(Functions, ForgetsWhatWasRemoved) {
  Functions functions;
  functions.AddHandler("a", Ignore);
  const auto under_way = functions.Find("a");
  EXPECT_TRUE(functions.Remove("a"));
  EXPECT_EQ(functions.Find("a"), nullptr);
  EXPECT_TRUE(under_way->handler);
  EXPECT_FALSE(functions.Remove("a"));
  functions.AddHandler("a", Ignore);
}

TEST(Functions, RefusesANameThatIsTaken) {
  Functions functions;
  functions.Add("square", [](double x) { return x * x; });
  try {
    functions.Add("square", [](double x) { return x; });
    FAIL() << "a second function took the name";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_NE(std::string(error.what()).find("square"), std::string::npos);
  }
  EXPECT_THROW(functions.AddHandler("", Ignore), Error);
}

TEST(Functions, HandlersAreDestroyedWithoutTheLock) {
  Functions functions;
  int destroyed = 0;
  // The end of what a handler holds looks at the table again.
  const auto handler = [&] {
    std::shared_ptr<int> token(new int, [&](int* token) {
      functions.Find("other");
      functions.AddHandler("end " + std::to_string(++destroyed), Ignore);
      delete token;
    });
    return [token](const std::shared_ptr<IncomingCall>&) {};
  };
  functions.AddHandler("a", handler());
  EXPECT_THROW(functions.AddHandler("a", handler()), Error);
  EXPECT_EQ(destroyed, 1);
  EXPECT_TRUE(functions.Remove("a"));
  EXPECT_EQ(destroyed, 2);
  functions.AddFamily("b.", Ignore);
  EXPECT_THROW(functions.AddFamily("b.", handler()), Error);
  EXPECT_EQ(destroyed, 3);
}

TEST(Functions, AFamilyServesEveryNameWithItsPrefixButNotThoseOfOthers) {
  Functions functions;
  functions.AddFamily("aten.", Ignore, {.is_short = true});
  functions.AddHandler("aten.own", Ignore);
  EXPECT_EQ(functions.Find("aten.add"), functions.Find("aten.add"));
  EXPECT_NE(functions.Find("aten.add"), functions.Find("aten.mul"));
  EXPECT_FALSE(functions.Find("aten.own")->is_short);
  EXPECT_EQ(functions.Find("ate"), nullptr);
}

TEST(Functions, NamesThatAPeerMakesUpDoNotGrowTheTable) {
  Functions functions;
  functions.AddFamily("aten.", Ignore);
  for (int i = 0; i < 5000; ++i) ASSERT_NE(functions.Find("aten." + std::to_string(i)), nullptr);
  EXPECT_NE(functions.Find("aten.4999"), functions.Find("aten.4999")) << "beyond the bound entries are not kept";
  EXPECT_EQ(functions.Find("aten.0"), functions.Find("aten.0"));
}

TEST(O2, AFunctionThatIsSlowInARowLosesItsShortFlag) {
  Functions functions;
  functions.AddHandler("slow", Ignore, {.is_short = true});
  functions.AddHandler("ordered", Ignore, {.is_ordered = true});
  const auto slow = functions.Find("slow");
  const std::chrono::milliseconds long_run(5);
  const std::chrono::microseconds short_run(5);
  slow->NoteInlineRun(long_run);
  slow->NoteInlineRun(long_run);
  slow->NoteInlineRun(short_run);
  slow->NoteInlineRun(long_run);
  EXPECT_TRUE(slow->is_short) << "one slow run now and then is the machine's fault";
  slow->NoteInlineRun(long_run);
  slow->NoteInlineRun(long_run);
  EXPECT_FALSE(slow->is_short);
  const auto ordered = functions.Find("ordered");
  for (int i = 0; i < 10; ++i) ordered->NoteInlineRun(long_run);
  EXPECT_TRUE(ordered->is_short) << "a step that must happen in header order never leaves it";
}

// A call of nobody, for what becomes of its arguments.
class CallWith final : public IncomingCall {
 public:
  explicit CallWith(Payload args) : args_(std::move(args)) {}
  const WorkerInfo& caller() const override { return caller_; }
  const std::string& function() const override { return function_; }
  Payload& args() override { return args_; }
  bool keeps_result() const override { return false; }
  bool cancelled() const override { return false; }
  void Reply(Payload) override { answered = true; }
  void Fail(Failure) override {}
  std::shared_ptr<void> Enter() override { return nullptr; }
  void Resume(UniqueFunction<void()> answer) override { answer(); }
  void Post(UniqueFunction<void()> answer) override { answer(); }

  bool answered = false;

 private:
  const WorkerInfo caller_{"caller", 0};
  const std::string function_ = "scale";
  Payload args_;
};

TEST(Functions, ArgumentsThatDoNotFitAreNamedWithTheirFunction) {
  Functions functions;
  functions.Add("scale", [](at::Tensor x, double by, std::vector<int64_t>) { return x * by; });
  functions.Add("one", [](int64_t x) { return x; });
  const auto refusal = [&](const char* name, Payload args) -> std::string {
    try {
      functions.Find(name)->handler(std::make_shared<CallWith>(std::move(args)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalid);
      return error.what();
    }
    return "no error";
  };
  using List = std::vector<int64_t>;
  const at::Tensor x = at::ones({1});
  EXPECT_EQ(refusal("scale", EncodeValue(std::tuple(x))), "'scale' takes 3 arguments, got 1");
  EXPECT_EQ(refusal("one", EncodeValue(std::tuple())), "'scale' takes 1 argument, got 0");
  EXPECT_EQ(refusal("scale", EncodeValue(std::tuple(std::string("x"), 1.0, List{}))),
            "argument 1 of 'scale': expected a tensor, got a string");
  EXPECT_EQ(refusal("scale", EncodeValue(std::tuple(x, x, List{}))),
            "argument 2 of 'scale': expected a float, got a tensor");
  EXPECT_EQ(refusal("scale", EncodeValue(std::tuple(x, 1.0, std::vector<double>{0.5}))),
            "argument 3 of 'scale': expected an int, got a float");
  EXPECT_EQ(refusal("scale", EncodeValue(int64_t{1})),
            "the arguments of 'scale': expected a tuple or a list, got an int");
  const auto good = std::make_shared<CallWith>(EncodeValue(std::tuple(x, 1.0, List{2})));
  functions.Find("scale")->handler(good);
  EXPECT_TRUE(good->answered);
}

}  // namespace
}  // namespace gradwire
