#include "process_end.h"

#include <pthread.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace gradwire::python {
namespace {

std::atomic<bool> program_ends{false};
pthread_t ends_on{};  // written before `program_ends`
std::atomic<int> at_work{0};  // served functions, and threads that sleep for ever
std::terminate_handler terminate_before = nullptr;

// On the thread that is about to abort the process.
[[noreturn]] void OnTerminate() {
  if (ProgramEnds() && !InterpreterLives() && !pthread_equal(pthread_self(), ends_on)) {
    ++at_work;
    for (;;) pause();
  }
  if (terminate_before) terminate_before();
  std::abort();
}

// After the interpreter's end and before that of any library: the exits run in the reverse order of registration.
void OnExit(int status, void*) {
  if (at_work == 0) return;
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

bool InterpreterLives() { return Py_IsInitialized() && !_Py_IsFinalizing(); }

void WatchTheEnd() { terminate_before = std::set_terminate(OnTerminate); }

void NoteExit() {
  if (program_ends) return;
  ends_on = pthread_self();
  program_ends = true;
  on_exit(OnExit, nullptr);
}

bool ProgramEnds() { return program_ends; }

ServedFunctionRuns::ServedFunctionRuns() { ++at_work; }
ServedFunctionRuns::~ServedFunctionRuns() { --at_work; }

}  // namespace gradwire::python
