// What of Python's goes where its lock must not be waited for (O2): a thread of its own takes the lock and lets go.
#pragma once

#include <ATen/core/Tensor.h>

#include "gil.h"

namespace gradwire::python {

// Starts that thread: whoever gives it something may hold a role and must not have to.
void StartReleases();

// Lets go of a reference: at once where the lock is held, and on the threads of a pool, else soon. Any thread.
void Release(PyObject* object) noexcept;

// Makes memory of a tensor that belongs to Python, as torch.from_numpy() takes it, go the same way: who lets go of it
// last, perhaps while he writes to a socket, does not wait for the lock. With the lock.
void ReleaseWithoutLock(const at::Tensor& tensor);

// Lets go of all that waits for it. With the lock.
void ReleaseNow();

// In a forked child, which has no thread that would do it.
void ForgetReleases();

}  // namespace gradwire::python
