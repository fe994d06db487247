"""Marks for functions that others call."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["async_execution"]

F = TypeVar("F", bound=Callable[..., Any])


def async_execution(fn: F) -> F:
    """Marks a function that returns a future, whose value is to be the result of calls from other workers.

    No thread of the callee waits for it: the caller gets its answer when the future completes. The future may come from
    `rpc_async`, from `then`, or from `torch.futures.Future()` and be completed by whoever holds it. What it fails with
    is raised at the caller. Called on its own worker the function returns its future as any other.

    Goes inside `staticmethod` and `classmethod`, outside `torch.jit.script`.

    A coroutine function (`async def`) needs no mark. All of a worker's run on one event loop, so they must not block:
    `rpc_sync`, `to_here`, `wait` and `all_gather` raise Error there; await `rpc_async(...)` instead. A call that is
    cancelled, or whose caller is lost, cancels its coroutine.
    """
    if isinstance(fn, (staticmethod, classmethod)):
        raise TypeError(f"async_execution goes inside {type(fn).__name__}, which must be the outermost decorator")

    @functools.wraps(fn)
    def asynchronous(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    asynchronous.__dict__["_async_execution"] = fn
    return asynchronous  # type: ignore[return-value]
