#include "base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("GRADWIRE_LOG");
  for (size_t i = 0; text && i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  }
  return LogLevel::kWarning;
}

struct Line {
  LogLevel level;
  std::string text;
  std::shared_ptr<const LogSink> sink;  // nullptr: stderr
};

// The lines that are to be written, and the thread that writes them.
class Writer {
 public:
  // Leaked: threads may log while the process ends.
  static Writer& Get() {
    static auto* const writer = new Writer;
    return *writer;
  }

  void Start() {
    std::lock_guard lock(mutex_);
    StartLocked();
  }
  void Add(LogLevel level, std::string_view text);
  bool Flush(std::optional<std::chrono::milliseconds> limit);
  LogSink Replace(LogSink sink);

 private:
  Writer();
  void StartLocked();
  void Run();
  static void Write(const Line& line);

  const LogLevel least_ = LevelFromEnvironment();
  std::mutex mutex_;  // guards:
  std::condition_variable added_, written_;
  std::deque<Line> lines_;
  std::shared_ptr<const LogSink> sink_;
  uint64_t dropped_ = 0;  // lines, since the last one in the queue
  uint64_t added_count_ = 0;
  uint64_t written_count_ = 0;
  bool runs_ = false;
  std::thread::id thread_;
};

// A forked child has the lines of its parent, which writes them, and no thread.
Writer::Writer() {
  std::atexit([] { Get().Flush(std::chrono::seconds(1)); });
  pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                 [] {
                   Writer& writer = Get();
                   new (&writer.added_) std::condition_variable;
                   new (&writer.written_) std::condition_variable;
                   writer.lines_.clear();
                   writer.written_count_ = writer.added_count_;
                   writer.runs_ = false;
                   writer.mutex_.unlock();
                 });
}

void Writer::StartLocked() {
  if (std::exchange(runs_, true)) return;
  try {
    std::thread thread([this] { Run(); });
    thread_ = thread.get_id();
    thread.detach();
  } catch (...) {
    runs_ = false;
    throw;
  }
}

void Writer::Add(LogLevel level, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (!sink_ && level < least_) return;
  StartLocked();
  if (lines_.size() >= kLongestLog) {
    ++dropped_;
    return;
  }
  if (const uint64_t dropped = std::exchange(dropped_, 0)) {
    ++added_count_;
    lines_.push_back({LogLevel::kWarning, std::to_string(dropped) + " lines of the log were dropped", sink_});
  }
  ++added_count_;
  lines_.push_back({level, std::string(text), sink_});
  added_.notify_one();
}

void Writer::Run() {
  pthread_setname_np(pthread_self(), "gradwire-log");
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [&] { return !lines_.empty(); });
    Line line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    Write(line);
    line = {};  // a sink may end here
    lock.lock();
    ++written_count_;
    written_.notify_all();
  }
}

void Writer::Write(const Line& line) {
  try {
    if (line.sink) return (*line.sink)(line.level, line.text);
    std::string out = "gradwire ";
    out.append(kNames[static_cast<size_t>(line.level)]).append(": ").append(line.text).push_back('\n');
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, out.data(), out.size());
  } catch (...) {
    // a log line is not worth an error
  }
}

bool Writer::Flush(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  if (std::this_thread::get_id() == thread_) return false;  // a sink, in the middle of a line
  const auto over = [this, count = added_count_] { return written_count_ >= count; };
  if (limit) return written_.wait_for(lock, *limit, over);
  written_.wait(lock, over);
  return true;
}

LogSink Writer::Replace(LogSink sink) {
  std::shared_ptr<const LogSink> before;
  {
    std::lock_guard lock(mutex_);
    before = std::exchange(sink_, sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr);
  }
  if (!before) return {};
  Flush(std::nullopt);
  return *before;
}

}  // namespace

void Log(LogLevel level, std::string_view text) noexcept {
  try {
    Writer::Get().Add(level, text);
  } catch (...) {
    // a log line is not worth an error
  }
}

void StartLog() noexcept {
  try {
    Writer::Get().Start();
  } catch (...) {
    // Log() tries again
  }
}

bool FlushLog(std::chrono::milliseconds limit) { return Writer::Get().Flush(limit); }

LogSink SetLogSink(LogSink sink) { return Writer::Get().Replace(std::move(sink)); }

}  // namespace gradwire
