#include "transport/inproc/inproc_line.h"

#include <algorithm>
#include <utility>

#include "transport/inproc/inproc_end.h"

namespace gradwire::transport {
namespace {

constexpr size_t kBatchBytes = 1024 * 1024;       // pulled at once
constexpr size_t kWindowBytes = 4 * 1024 * 1024;  // on their way: what the source has later waits for no more
// After Finish() the window does not count, since there is no clock to say how long a reader may be waited for. Frames
// share what they carry, so this bounds the end of a source without end and costs no memory.
constexpr size_t kMostLastFrames = 65536;

}  // namespace

InprocLine::InprocLine(std::weak_ptr<InprocEnd> writer, std::weak_ptr<InprocEnd> reader,
                       std::shared_ptr<Executor> executor, std::shared_ptr<InprocTiming> timing)
    : writer_(std::move(writer)),
      reader_(std::move(reader)),
      executor_(std::move(executor)),
      timing_(std::move(timing)) {}

InprocLine::~InprocLine() {
  for (Waiting& waiting : frames_) returned_.push_back(std::move(waiting.frame));
  if (!returned_.empty()) source_->Release(returned_);
}

void InprocLine::Open(std::shared_ptr<FrameSource> source) {
  {
    std::lock_guard lock(mutex_);
    if (shut_) return;
    source_ = std::move(source);
    open_ = true;
  }
  executor_->Post([self = shared_from_this()] { self->Settle(); });
}

void InprocLine::Wake() {
  if (role_.Wake()) Pump();
}

// The role, whatever keeps it from being free: the line has room now, or is not to be pulled into any more.
void InprocLine::Settle() {
  if (role_.Wake() || role_.OnRoom()) Pump();
}

void InprocLine::Finish() {
  {
    std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  Settle();
}

void InprocLine::Abort() {
  std::vector<TimePoint> times;
  {
    std::lock_guard lock(mutex_);
    if (shut_) return;
    shut_ = true;
    if (timing_ && !broken_) LoseLocked(timing_->UpTo(frames_.size()));  // as of a socket that is reset
    EndLocked("the other side closed the connection");
    times.push_back(end_->due);
  }
  Settle();
  TellReader(times);
}

bool InprocLine::is_shut() const {
  std::lock_guard lock(mutex_);
  return shut_;
}

InprocLine::Look InprocLine::LookRound() {
  Look look;
  std::lock_guard lock(mutex_);
  look.release.swap(returned_);
  if (!shut_ && open_ && !broken_ && !(finishing_ && last_frames_ >= kMostLastFrames)) {
    look.full = !finishing_ && bytes_ >= kWindowBytes;
    look.pull = !look.full;
    look.last = finishing_;
  } else {
    look.shut = finishing_ && !shut_;
    if (shut_ && away_ == 0) look.drop = std::move(source_);
  }
  return look;
}

void InprocLine::Pump() {
  std::vector<OutFrame> frames;
  for (;;) {
    role_.BeforePull();
    Look look = LookRound();
    if (!look.release.empty()) (look.drop ? look.drop : source_)->Release(look.release);
    if (look.pull) {
      source_->Next(kBatchBytes, frames);
      if (!frames.empty()) {
        Push(frames);
        continue;
      }
    }
    if (look.shut || look.last) {
      Shut();
      continue;
    }
    if (look.full) {
      role_.GiveBackUntilRoom();
      if (HasRoom() && role_.OnRoom()) continue;  // it came between the look and the giving back
      return;
    }
    if (role_.GiveBack() == WriteRole::Given::kFree) return;
  }
}

void InprocLine::Push(std::vector<OutFrame>& frames) {
  std::vector<TimePoint> times;
  {
    std::lock_guard lock(mutex_);
    if (finishing_) last_frames_ += frames.size();
    for (OutFrame& frame : frames) {
      if (shut_ || broken_) {
        returned_.push_back(std::move(frame));
        continue;
      }
      bytes_ += frame.size();
      ++away_;
      frames_.push_back({std::move(frame), NextDueLocked()});
      if (timing_ || times.empty()) times.push_back(frames_.back().due);
    }
  }
  frames.clear();
  TellReader(times);
}

void InprocLine::Shut() {
  std::vector<TimePoint> times;
  {
    std::lock_guard lock(mutex_);
    if (!shut_) {
      shut_ = true;
      EndLocked("the other side closed the connection");
      times.push_back(end_->due);
    }
  }
  TellReader(times);
  if (auto writer = writer_.lock()) writer->Schedule();
}

bool InprocLine::HasRoom() const {
  std::lock_guard lock(mutex_);
  return HasRoomLocked();
}

// Low enough that pulling is worth the while.
bool InprocLine::HasRoomLocked() const { return bytes_ <= kWindowBytes / 2 || shut_ || finishing_ || broken_; }

std::optional<OutFrame> InprocLine::Pop() {
  std::optional<OutFrame> frame;
  bool room = false;
  {
    std::lock_guard lock(mutex_);
    if (frames_.empty() || !IsDueLocked(frames_.front().due)) return frame;
    frame = std::move(frames_.front().frame);
    frames_.pop_front();
    bytes_ -= frame->size();
    room = HasRoomLocked();
  }
  if (room && role_.OnRoom()) executor_->Post([self = shared_from_this()] { self->Pump(); });
  return frame;
}

// Releases under the write role, and pulls nothing: the writing end is not to work because the other one does.
void InprocLine::Return(OutFrame frame) {
  {
    std::lock_guard lock(mutex_);
    --away_;
    returned_.push_back(std::move(frame));
  }
  if (!role_.Wake()) return;  // its holder looks round again
  std::vector<OutFrame> release;
  std::shared_ptr<FrameSource> drop;
  {
    std::lock_guard lock(mutex_);
    release.swap(returned_);
    if (shut_ && away_ == 0) drop = std::move(source_);
  }
  if (!release.empty()) (drop ? drop : source_)->Release(release);
  if (role_.GiveBack() == WriteRole::Given::kWanted) Pump();
}

std::optional<std::string> InprocLine::end() const {
  std::lock_guard lock(mutex_);
  if (end_ && frames_.empty() && IsDueLocked(end_->due)) return end_->text;
  return std::nullopt;
}

bool InprocLine::has_arrived() const {
  std::lock_guard lock(mutex_);
  if (!frames_.empty()) return IsDueLocked(frames_.front().due);
  return end_ && IsDueLocked(end_->due);
}

void InprocLine::Drop() {
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
    LoseLocked(0);
  }
  Settle();
}

void InprocLine::Cut(const Survivors& survivors) {
  std::vector<TimePoint> times;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = true;
    LoseLocked(survivors ? survivors(frames_.size()) : 0);
    end_.reset();
    EndLocked("the line was cut");
    times.push_back(end_->due);
  }
  Settle();
  TellReader(times);
}

void InprocLine::Hold(bool held) {
  {
    std::lock_guard lock(mutex_);
    held_ = held;
  }
  if (!held) TellReader({TimePoint::min()});
}

void InprocLine::EndLocked(std::string text) {
  if (!end_) end_ = End{std::move(text), NextDueLocked()};
}

void InprocLine::LoseLocked(size_t survivors) {
  for (; frames_.size() > survivors; frames_.pop_back()) {
    bytes_ -= frames_.back().frame.size();
    --away_;
    returned_.push_back(std::move(frames_.back().frame));
  }
}

bool InprocLine::IsDueLocked(TimePoint due) const { return !held_ && (!timing_ || due <= timing_->Now()); }

// In order: a frame is not earlier than the one before.
TimePoint InprocLine::NextDueLocked() {
  if (timing_) last_due_ = std::max(last_due_, timing_->Arrival());
  return last_due_;
}

void InprocLine::TellReader(const std::vector<TimePoint>& times) {
  for (const TimePoint time : times) {
    if (timing_ && time > timing_->Now()) {
      timing_->clock().CallAt(time, [weak = reader_] {
        if (auto reader = weak.lock()) reader->Schedule();
      });
    } else if (auto reader = reader_.lock()) {
      reader->Schedule();
    }
  }
}

}  // namespace gradwire::transport
