#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/event.h"

namespace gradwire {
namespace {

// A sink of this test while it lives.
class Lines {
 public:
  Lines() {
    before_ = SetLogSink([this](LogLevel, std::string_view text) {
      if (stop_) stop_->Wait();
      lines_.emplace_back(text);
    });
  }
  ~Lines() { SetLogSink(std::move(before_)); }

  void StopAt(Event& event) { stop_ = &event; }
  const std::vector<std::string>& flushed() const {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    return lines_;
  }

 private:
  LogSink before_;
  Event* stop_ = nullptr;
  std::vector<std::string> lines_;
};

TEST(Log, LinesKeepTheirOrder) {
  Lines lines;
  std::vector<std::string> said;
  for (int i = 0; i < 1000; ++i) {
    said.push_back(std::to_string(i));
    Log(LogLevel::kDebug, said.back());
  }
  EXPECT_EQ(lines.flushed(), said);
}

// O2: whoever logs under a role goes on.
TEST(Log, AWriterThatStandsHoldsUpNobody) {
  Lines lines;
  Event go_on;
  lines.StopAt(go_on);
  constexpr size_t kMore = 10;
  for (size_t i = 0; i < kLongestLog + kMore; ++i) Log(LogLevel::kInfo, "line");
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(1)));
  go_on.Set();
  const size_t written = lines.flushed().size();
  EXPECT_GE(written, kLongestLog);
  EXPECT_LE(written, kLongestLog + 1) << "one was being written";
  Log(LogLevel::kInfo, "later");
  const std::vector<std::string>& all = lines.flushed();
  ASSERT_EQ(all.size(), written + 2);
  EXPECT_EQ(all[written], std::to_string(kLongestLog + kMore - written) + " lines of the log were dropped");
  EXPECT_EQ(all[written + 1], "later");
}

TEST(Log, ASinkHasAllItsLinesOnceItIsReplaced) {
  std::vector<std::string> lines;
  LogSink before = SetLogSink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  for (int i = 0; i < 100; ++i) Log(LogLevel::kInfo, "for the sink");
  SetLogSink(std::move(before));
  EXPECT_EQ(lines.size(), 100u);
}

TEST(Log, ASinkMayLog) {
  std::vector<std::string> lines;
  LogSink before = SetLogSink([&](LogLevel level, std::string_view text) {
    lines.emplace_back(text);
    if (level == LogLevel::kError) Log(LogLevel::kInfo, "the second");
  });
  Log(LogLevel::kError, "the first");
  FlushLog(std::chrono::seconds(60));
  FlushLog(std::chrono::seconds(60));
  SetLogSink(std::move(before));
  EXPECT_EQ(lines, (std::vector<std::string>{"the first", "the second"}));
}

// What a child process writes to stderr that runs `body` and then returns from main().
template <class Body>
std::string WrittenByChild(Body body) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    std::exit(0);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof(part))) > 0;) text.append(part, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(Log, TheEndOfTheProgramWritesWhatIsLeftAndAForkedChildOnlyItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this sanitizer allows no thread in a forked child";
#endif
  Event go_on;
  {
    Lines lines;
    lines.StopAt(go_on);
    Log(LogLevel::kError, "of the parent");
    const std::string text = WrittenByChild([] {
      SetLogSink({});
      for (int i = 0; i < 500; ++i) Log(LogLevel::kError, std::to_string(i));
    });
    go_on.Set();
    // Lines alone that are the log's: a sanitizer may write some of its own at the end of a program.
    size_t written = 0;
    for (size_t at = 0; (at = text.find("gradwire error: ", at)) != std::string::npos; ++at) ++written;
    EXPECT_EQ(written, 500);
    EXPECT_EQ(text.find("of the parent"), std::string::npos);
    EXPECT_NE(text.find("gradwire error: 499\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace gradwire
