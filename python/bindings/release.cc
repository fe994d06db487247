#include "release.h"

#include <c10/core/Allocator.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "process_end.h"

namespace gradwire::python {
namespace {

struct Held {
  void (*let_go)(void*);
  void* what;
};

class Releaser {
 public:
  void Start() {
    const std::lock_guard lock(mutex_);
    StartLocked();
  }

  // Where no worker was made the thread may not run yet, and nobody holds a role.
  void Add(Held held) {
    const std::lock_guard lock(mutex_);
    StartLocked();
    waiting_.push_back(held);
    added_.notify_one();
  }

  // With the lock of the interpreter. Destructors may add more.
  void ReleaseAll() {
    for (;;) {
      std::vector<Held> all;
      {
        const std::lock_guard lock(mutex_);
        all.swap(waiting_);
      }
      if (all.empty()) return;
      for (const Held& each : all) each.let_go(each.what);
    }
  }

 private:
  void StartLocked() {
    if (!std::exchange(runs_, true)) std::thread([this] { Run(); }).detach();
  }

  void Run() {
    pthread_setname_np(pthread_self(), "gradwire-free");
    EnterThread();
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        added_.wait(lock, [&] { return !waiting_.empty(); });
      }
      if (ProgramEnds()) return;  // nobody frees it any more
      const Locked locked;
      ReleaseAll();
    }
  }

  std::mutex mutex_;  // guards:
  std::condition_variable added_;
  std::vector<Held> waiting_;
  bool runs_ = false;
};

// Never freed: threads may let go of things until the process has ended.
std::atomic<Releaser*>& TheReleaser() {
  static std::atomic<Releaser*> releaser{new Releaser};
  return releaser;
}

void Enqueue(Held held) noexcept { TheReleaser().load()->Add(held); }

// The one by which libtorch ends memory that came with a function to free it.
c10::DeleterFnPtr DeleterOfFunctions() {
  static const c10::DeleterFnPtr deleter = [] {
    int somewhere = 0;
    return c10::InefficientStdFunctionContext::makeDataPtr(&somewhere, [](void*) {}, c10::Device(c10::kCPU))
        .get_deleter();
  }();
  return deleter;
}

void LetGoOfMemory(void* context) {
  if (!InterpreterLives()) return;
  if (PyGILState_Check()) return DeleterOfFunctions()(context);
  Enqueue({DeleterOfFunctions(), context});
}

}  // namespace

void Release(PyObject* object) noexcept {
  if (!object || !InterpreterLives()) return;  // nobody frees it any more
  if (PyGILState_Check()) {
    Py_DECREF(object);
  } else if (IsWorkerThread()) {
    const Locked locked;
    Py_DECREF(object);
  } else {
    Enqueue({[](void* what) { Py_DECREF(static_cast<PyObject*>(what)); }, object});
  }
}

void ReleaseWithoutLock(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  // Storages are handles: what this changes is the storage that they share.
  c10::StorageImpl* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (!storage) return;
  at::DataPtr& memory = storage->_mutable_data_ptr_no_checks();
  static_cast<void>(memory.compare_exchange_deleter(DeleterOfFunctions(), LetGoOfMemory));
}

void StartReleases() { TheReleaser().load()->Start(); }

void ReleaseNow() { TheReleaser().load()->ReleaseAll(); }

void ForgetReleases() { TheReleaser() = new Releaser; }

}  // namespace gradwire::python
