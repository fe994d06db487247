// What Rpc says of calls that are under way.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "rpc/rpc_impl.h"

namespace gradwire::rpc {
namespace {

std::string Seconds(Duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

using Line = std::pair<TimePoint, std::string>;  // since when, what

// The oldest first.
std::vector<std::string> Texts(std::vector<Line> lines, TimePoint now, size_t most) {
  std::sort(lines.begin(), lines.end());
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(most, lines.size()); ++i) {
    texts.push_back(std::move(lines[i].second) + " since " + Seconds(now - lines[i].first));
  }
  if (lines.size() > most) texts.push_back(std::to_string(lines.size() - most) + " more");
  return texts;
}

}  // namespace

Rpc::Work Rpc::Impl::WorkNow(size_t most) const {
  const TimePoint now = options_.clock->Now();
  std::vector<Line> runs, awaits;
  std::vector<std::shared_ptr<ServedCallImpl>> served = served_.All();
  for (const auto& call : served) {
    if (call->is_internal()) continue;
    runs.emplace_back(call->since(), self().name + " runs '" + call->shown_as() + "' for " + call->caller().name);
  }
  auto pending = pending_.All();
  for (const auto& call : pending) {
    awaits.emplace_back(call->since, self().name + " awaits '" + call->shown_as + "' of " + call->to.name);
  }
  // Perhaps the last ones: not destroyed under a role.
  options_.executor->Post([served = std::move(served), pending = std::move(pending)] {});
  return {.runs = Texts(std::move(runs), now, most), .awaits = Texts(std::move(awaits), now, most)};
}

}  // namespace gradwire::rpc
