// The end of the process while threads of its workers, or of the program, are still at work (M3).
//
// The interpreter ends a thread that asks for its lock too late by unwinding it, from wherever it asks. Below a frame
// that may not throw, such as the destructor by which each operator of torch takes the lock back, that aborts the
// process. So such a thread sleeps here instead, until the process has ended.
#pragma once

namespace gradwire::python {

// False before Python has started and from the beginning of its end: then its lock must not be asked for.
bool InterpreterLives();

// Once, at import.
void WatchTheEnd();

// The program ends; called by the thread that will end the interpreter. A thread that waits then is left to wait: one
// that is woken just before the interpreter ends would ask for its lock too late.
void NoteExit();
bool ProgramEnds();

// A function that this process serves runs while this lives. When the process ends meanwhile, it ends at once, with its
// exit code: the function may use what the ends of libraries would destroy.
class ServedFunctionRuns {
 public:
  ServedFunctionRuns();
  ~ServedFunctionRuns();
  ServedFunctionRuns(const ServedFunctionRuns&) = delete;
};

}  // namespace gradwire::python
