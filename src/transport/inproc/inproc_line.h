// InprocLine: one direction of an in-process connection. It pulls from the source of one end, and what it pulled waits
// for the receiver of the other one.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "transport/inproc/inproc_timing.h"
#include "transport/transport.h"
#include "transport/write_role.h"

namespace gradwire::transport {

class InprocEnd;

// Any thread; what the read role alone may call says so. Frames go back to the source's Release() when they are
// delivered or lost.
class InprocLine : public std::enable_shared_from_this<InprocLine> {
 public:
  // `executor`: where it goes on pulling. `timing`: nullptr where frames take no time.
  InprocLine(std::weak_ptr<InprocEnd> writer, std::weak_ptr<InprocEnd> reader, std::shared_ptr<Executor> executor,
             std::shared_ptr<InprocTiming> timing);
  ~InprocLine();
  InprocLine(const InprocLine&) = delete;

  // Of the writing end. Begins to pull, soon and elsewhere. Once.
  void Open(std::shared_ptr<FrameSource> source);
  void Wake();
  // What the source still gives goes; then, and not after Abort() any more, the line is shut: nothing is pulled again.
  void Finish();
  void Abort();
  bool is_shut() const;

  // Of the reading end. REQUIRES: the read role.
  std::optional<OutFrame> Pop();  // a frame that has arrived; it comes back by Return()
  void Return(OutFrame frame);
  std::optional<std::string> end() const;  // nothing more will come, and all that came was popped: why
  // Any thread: Pop() or end() has something to say.
  bool has_arrived() const;
  // The reading end is gone: what waits and what still comes is lost.
  void Drop();

  // The line breaks. `survivors` is told how many frames are on their way and says how many of them arrive yet, the
  // first ones; empty: none.
  using Survivors = std::function<size_t(size_t waiting)>;
  void Cut(const Survivors& survivors);
  // While held nothing arrives.
  void Hold(bool held);

 private:
  struct Waiting {
    OutFrame frame;
    TimePoint due;  // with `timing_`
  };
  struct End {
    std::string text;
    TimePoint due;
  };
  // What the holder of the write role does next.
  struct Look {
    std::vector<OutFrame> release;
    std::shared_ptr<FrameSource> drop;  // the last frame is back
    bool pull = false, last = false, full = false, shut = false;
  };

  // REQUIRES: the write role, which is given back.
  void Pump();
  Look LookRound();
  void Push(std::vector<OutFrame>& frames);
  void Shut();

  void Settle();
  bool HasRoom() const;
  bool HasRoomLocked() const;
  void EndLocked(std::string text);
  void LoseLocked(size_t survivors);
  bool IsDueLocked(TimePoint due) const;
  TimePoint NextDueLocked();
  void TellReader(const std::vector<TimePoint>& times);

  const std::weak_ptr<InprocEnd> writer_, reader_;
  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<InprocTiming> timing_;

  WriteRole role_;
  std::shared_ptr<FrameSource> source_;  // set by Open(), dropped under the write role

  mutable std::mutex mutex_;  // guards:
  std::deque<Waiting> frames_;
  size_t bytes_ = 0;                // of frames_
  size_t away_ = 0;                 // frames that were pulled and are not yet to be released
  std::vector<OutFrame> returned_;  // to be released
  size_t last_frames_ = 0;          // pulled since Finish()
  TimePoint last_due_{};
  std::optional<End> end_;
  bool open_ = false;
  bool finishing_ = false;
  bool shut_ = false;
  bool broken_ = false;  // what is pushed is lost
  bool held_ = false;
};

}  // namespace gradwire::transport
