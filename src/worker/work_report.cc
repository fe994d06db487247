#include "worker/work_report.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/event.h"
#include "gradwire/error.h"
#include "gradwire/value.h"

namespace gradwire {
namespace {

constexpr size_t kMostOfOne = 5;   // calls of one worker
constexpr size_t kMostOfAll = 20;  // in one text
constexpr std::chrono::milliseconds kLimit{1000};

using Lines = std::tuple<std::vector<std::string>, std::vector<std::string>>;  // as rpc::Rpc::Work

// What has come in from all who are asked.
struct Answers {
  void Add(Lines lines) {
    const auto append = [](std::vector<std::string>& to, std::vector<std::string>& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    std::lock_guard lock(mutex);
    append(runs, std::get<0>(lines));
    append(awaits, std::get<1>(lines));
  }
  void Done() {
    {
      std::lock_guard lock(mutex);
      if (--left > 0) return;
    }
    all.Set();
  }

  Event all;
  std::mutex mutex;
  // guarded by mutex
  size_t left = 0;
  std::vector<std::string> runs, awaits;
};

Lines LinesOf(const rpc::Rpc& rpc) {
  rpc::Rpc::Work work = rpc.work(kMostOfOne);
  return {std::move(work.runs), std::move(work.awaits)};
}

}  // namespace

void AnswerWork(const rpc::Rpc& rpc, IncomingCall& call) { call.Reply(EncodeValue(LinesOf(rpc))); }

std::string DescribeWork(rpc::Rpc& rpc, const std::vector<rpc::Peer>& peers) {
  const auto answers = std::make_shared<Answers>();
  answers->left = peers.size() + 1;
  answers->Add(LinesOf(rpc));
  answers->Done();
  for (const rpc::Peer& peer : peers) {
    rpc::Call call{.to = peer.id, .function = kWorkFunction, .args = EncodeValue(std::tuple<>())};
    call.internal = true;
    call.options.timeout = kLimit;
    const auto done = [answers](Outcome outcome) {
      try {
        if (outcome.ok()) answers->Add(DecodeValue<Lines>(outcome.value()));
      } catch (const Error&) {
        // it has nothing to say that can be read here
      }
      answers->Done();
    };
    try {
      rpc.Send(std::move(call), done);
    } catch (const Error&) {
      answers->Done();  // this worker is about to end
    }
  }
  rpc.executor()->Await(answers->all, kLimit);
  std::lock_guard lock(answers->mutex);
  const std::vector<std::string>& lines = answers->runs.empty() ? answers->awaits : answers->runs;
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMostOfAll); ++i) text += (i ? "; " : ": ") + lines[i];
  if (lines.size() > kMostOfAll) text += "; and more";
  return text;
}

}  // namespace gradwire
