#include "rpc/borrowed_read.h"

#include <optional>
#include <thread>

namespace gradwire::rpc {
namespace {

thread_local bool borrowed = false;

const at::ThreadLocalState& OfNewThread() {
  static const at::ThreadLocalState state = [] {
    std::optional<at::ThreadLocalState> captured;
    std::thread([&captured] { captured.emplace(); }).join();
    return *captured;
  }();
  return state;
}

}  // namespace

BorrowedRead::BorrowedRead() : plain_(OfNewThread()) { borrowed = true; }
BorrowedRead::~BorrowedRead() { borrowed = false; }
bool BorrowedRead::on_this_thread() { return borrowed; }

}  // namespace gradwire::rpc
