// Two workers' sessions and links over connections that a test delivers by hand, for tests.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/link.h"
#include "rpc/session.h"

namespace gradwire::rpc {

// Time stands still but for Advance().
class HandClock : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  TimerId CallAt(TimePoint when, Task task) override {
    timers_.emplace(std::pair(when, ++last_), std::move(task));
    return last_;
  }
  void Cancel(TimerId id) override {
    std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
  }
  void Advance(Duration time) {
    const TimePoint end = now_ + time;
    while (!timers_.empty() && timers_.begin()->first.first <= end) {
      now_ = std::max(now_, timers_.begin()->first.first);
      Task task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      task();
    }
    now_ = end;
  }

 private:
  TimePoint now_{std::chrono::hours(1)};
  TimerId last_ = 0;
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
};

// One end of a line. What it pulls waits in `out` until the test delivers it to the other end.
class HandConnection : public transport::Connection {
 public:
  void Start(std::shared_ptr<transport::Receiver> receiver, std::shared_ptr<transport::FrameSource> source) override {
    receiver_ = std::move(receiver);
    source_ = std::move(source);
    Wake();
  }
  void Wake() override {
    while (source_ && !aborted_) {
      std::vector<transport::OutFrame> frames;
      source_->Next(size_t{1} << 20, frames);
      if (frames.empty()) return;
      for (auto& frame : frames) out.push_back(std::move(frame));
    }
  }
  void Close(Failure reason) override {
    if (closing_) return;
    Wake();
    closing_ = true;
    reason_ = std::move(reason);
  }
  void Abort(Failure reason) override {
    aborted_ = true;
    out.clear();
    if (!closing_) reason_ = std::move(reason);
    closing_ = true;
  }
  void SetBodyLimit(uint32_t) override {}
  std::string description() const override { return "a line by hand"; }

  // Takes a frame from the other side; false when this end has closed.
  bool Deliver(const transport::OutFrame& frame);
  // Tells the end once Close(), Abort() or Break() was called. Whether it has.
  bool TellEnd();
  void Break() {
    out.clear();
    aborted_ = true;
    if (!std::exchange(closing_, true)) reason_ = {.code = ErrorCode::kDisconnected, .text = "the line broke"};
  }
  bool closing() const { return closing_; }
  const Failure& reason() const { return reason_; }

  std::vector<transport::OutFrame> out;

 private:
  std::shared_ptr<transport::Receiver> receiver_;
  std::shared_ptr<transport::FrameSource> source_;
  bool closing_ = false, aborted_ = false;
  Failure reason_;
};

class HandHost : public SessionHost, public LinkHost, public std::enable_shared_from_this<HandHost> {
 public:
  HandHost(Peer self, Peer other, HandClock& clock) : self_(std::move(self)), other_(std::move(other)), clock_(clock) {}

  const Peer& self() const override { return self_; }
  Clock& clock() override { return clock_; }
  HalfOpen& half_open() override { return half_open_; }
  const std::string& job_key() const override { return key; }
  std::optional<Member> FindMember(WorkerId id) const override {
    return id == other_.id ? std::optional(Member{.peer = other_}) : std::nullopt;
  }
  std::optional<Member> Admit(const Peer&) override { return std::nullopt; }
  std::shared_ptr<Session> AcceptingSession(const Peer&) override { return session; }

  void Dial(const std::shared_ptr<Session>&, uint64_t dial) override { dials.push_back(dial); }
  Task OnRequest(const std::shared_ptr<Session>&, wire::Request request) override {
    header_steps.push_back(request.function);
    return [this, request = std::move(request)]() mutable { complete.push_back(std::move(request)); };
  }
  Task OnReply(const std::shared_ptr<Session>&, wire::Reply) override {
    return [] {};
  }
  void OnCancel(const std::shared_ptr<Session>&, const wire::Cancel&) override {}
  void Admit(std::vector<Task> sends) override { admitted += sends.size(); }
  bool FindMemoryNow(const std::shared_ptr<Session>&, std::vector<wire::BulkTarget>&,
                     const std::shared_ptr<BulkBudget::Lease>&) override {
    return false;
  }
  void FindMemory(const std::shared_ptr<Session>&, uint64_t number, std::vector<wire::BulkTarget> storages,
                  const std::shared_ptr<BulkBudget::Lease>&) override {
    lacking.emplace_back(number, std::move(storages));
  }
  Duration silence_limit() const override { return std::chrono::seconds(10); }
  bool AwaitsAnswer(const Peer&) const override { return false; }
  void OnSilent(const std::shared_ptr<Session>&, const Failure& why) override { silent.push_back(why); }
  void OnEnded(const std::shared_ptr<Session>&, const Failure& reason, uint64_t never_sent) override {
    ended.push_back(reason);
    first_never_sent = never_sent;
  }
  void OnDrained(const std::shared_ptr<Session>&) override { ++drained; }
  void Discard(std::vector<Task> tasks) override { discarded += tasks.size(); }
  void Post(Task task) override { task(); }
  size_t max_bulk_bytes() const override { return size_t{1} << 40; }

  std::string key = "the key of this job";
  std::shared_ptr<Session> session;
  std::vector<uint64_t> dials;
  size_t discarded = 0, admitted = 0;
  int drained = 0;
  uint64_t first_never_sent = 0;
  std::vector<std::string> header_steps;
  std::vector<wire::Request> complete;
  std::vector<std::pair<uint64_t, std::vector<wire::BulkTarget>>> lacking;
  std::vector<Failure> silent, ended;

 private:
  const Peer self_, other_;
  HandClock& clock_;
  HalfOpen half_open_;
};

// `near` dials `far` unless the test says otherwise.
class HandPair {
 public:
  HandPair();
  ~HandPair();

  using Line = std::pair<std::shared_ptr<HandConnection>, std::shared_ptr<HandConnection>>;  // of near, of far

  // Carries out the last dial of a side: a new line.
  Line& Connect(HandHost& from);
  // Delivers what waits on all lines, and the ends, until nothing does.
  void Run();
  // The line breaks: of what waits on it, only the first frames arrive.
  void Cut(Line& line, size_t to_far = 0, size_t to_near = 0);

  HandClock clock;
  std::shared_ptr<HandHost> near, far;
  std::vector<std::unique_ptr<Line>> lines;
};

wire::EncodedMessage RequestMessage(const std::string& function, size_t floats = 0);

}  // namespace gradwire::rpc
