// Functions::Entry: a registered function as the dispatcher sees it.
#pragma once

#include <atomic>
#include <chrono>

#include "gradwire/function.h"

namespace gradwire {

struct Functions::Entry {
  Entry(Handler handler, FunctionOptions options)
      : handler(std::move(handler)),
        is_internal(options.is_internal),
        is_ordered(options.is_ordered),
        is_short(options.is_short || options.is_ordered),
        is_short_for_(std::move(options.is_short_for)) {}

  const Handler handler;
  const bool is_internal;
  const bool is_ordered;
  std::atomic<bool> is_short;

  // Whether a call of `name` with `args` runs under the read role.
  bool RunsInline(const std::string& name, const Payload& args) const {
    return is_short.load(std::memory_order_relaxed) && (!is_short_for_ || is_short_for_(name, args));
  }

  // What turns out slow loses the flag (O2). One slow run may be the machine's fault, several in a row are not.
  void NoteInlineRun(std::chrono::steady_clock::duration took) {
    if (took < std::chrono::microseconds(300)) {
      slow_in_a_row_.store(0, std::memory_order_relaxed);
    } else if (slow_in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 >= 3 && !is_ordered) {
      is_short.store(false, std::memory_order_relaxed);
    }
  }

 private:
  const std::function<bool(const std::string&, const Payload&)> is_short_for_;
  std::atomic<int> slow_in_a_row_{0};
};

}  // namespace gradwire
