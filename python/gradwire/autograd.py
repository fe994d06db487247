"""Distributed autograd: gradients across calls.

with autograd.context() as context_id:
    loss = rpc.rpc_sync("worker1", forward, args=(x,)).sum()
    autograd.backward(context_id, [loss])
    gradients = autograd.get_gradients(context_id)
"""

import torch

from gradwire import _C, _default

__all__ = ["backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """True: the package does not import without its library."""
    return True


class context:
    """A context for the calls inside `with`; gives its id. Its end releases it on all workers.

    It belongs to the thread or the asyncio task that entered it and to the tasks, callbacks (`Future.then`) and calls
    of `asyncio.to_thread` that these start. Other threads are not in it: run what they are to do in it by
    `contextvars.copy_context().run(...)`, the copy made inside.
    """

    def __enter__(self) -> int:
        worker = _default.required()
        self._context = _C.AutogradContext(worker)
        self._outer = _C.surroundings.get(None)
        _C.surroundings.set(_C.inside(worker, self._context.id()))
        return self._context.id()

    def __exit__(self, *error: object) -> None:
        _C.surroundings.set(self._outer)
        self._context.close()


def backward(context_id: int, roots: list[torch.Tensor] | torch.Tensor, retain_graph: bool = False) -> None:
    """Computes the gradients of the sum of `roots` for all leaves on all workers that take part, into the context.

    `.grad` is left alone. Blocks until all gradients are in place.

    Args:
        context_id: of a context that this worker takes part in.
        roots: scalars that require grad, or one of them.
        retain_graph: keep the graph for another pass.

    Raises:
        Error: bad roots, an unknown context, a node that failed on any worker, or the loss of a worker. A failed pass
            adds no gradient.
    """
    _C.backward(_default.required(), context_id, roots, retain_graph)


def get_gradients(context_id: int) -> dict[torch.Tensor, torch.Tensor]:
    """The gradient of each leaf of this process that has one in the context, by the leaf tensor itself."""
    return _C.get_gradients(_default.required(), context_id)
