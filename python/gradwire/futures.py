"""Future: torch's own, whose errors keep their type and whose waits Ctrl-C ends."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import torch

from gradwire import _C, _default
from gradwire.errors import kept

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(torch.futures.Future[T], Generic[T]):
    """The result of an asynchronous call. A `torch.futures.Future` in every way that a program can ask for.

    Callbacks run on a thread of the worker's pool, one after another in the order of their registration; they may make
    calls and wait for them.
    """

    _call: _C.Call | None = None  # the call that completes it
    _origin: _C.Call | None = None  # for futures that others complete: a call that they wait for

    def cancel(self) -> bool:
        """Ends the call with an error whose code is Cancelled, unless it has ended; True when it did.

        The future is done then, and its callbacks have run on this thread.

        The callee does not start the function if it has not yet. A coroutine is cancelled where it awaits; any other
        function that runs goes on, and its result is discarded. Futures that no call completes cannot be cancelled:
        False.
        """
        return self._call is not None and self._call.cancel()

    def wait(self) -> T:
        """The value; blocks until it is there. Raises what the function raised on its callee, each time."""
        self._check()
        _C.future_wait(self, _default.worker)
        return super().wait()

    def _check(self) -> None:
        """Nobody would end it in a forked child."""
        call = self._call or self._origin
        if call is not None and not self.done():
            call.check()

    def _follow(self, other: torch.futures.Future[Any]) -> None:
        """Notes that this is done no sooner than `other`."""
        if isinstance(other, Future) and not other.done():
            self._origin = other._call or other._origin or self._origin

    def then(self, callback: Callable[["Future[T]"], S]) -> "Future[S]":
        """The future of what `callback(self)` returns. Its calls belong to the context and the deadline that hold here.

        What it raises is raised by that future's `wait`, as an exception that is a RuntimeError and of its own type.
        """
        following: Future[S] = Future()
        following._follow(self)
        _C.future_then(self, callback, following, _default.worker)
        return following

    def add_done_callback(self, callback: Callable[["Future[T]"], object]) -> None:
        """Calls `callback(self)` when done, at once when it is already. What it raises is printed and forgotten.

        Its calls belong to the autograd context and the deadline that hold here.
        """
        _C.future_add_done_callback(self, callback)

    def __await__(self) -> Generator[Any, None, T]:
        """The value, in a coroutine on a running event loop of asyncio; other coroutines run meanwhile.

        What cancels the wait (`Task.cancel`, `asyncio.wait_for`, `asyncio.timeout`, a `TaskGroup`) cancels the call.
        """
        self._check()
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()

            def wake() -> None:
                if not waiter.done():  # the awaiting task may have been cancelled
                    waiter.set_result(None)

            def completed(_: Future[T]) -> None:
                with contextlib.suppress(RuntimeError):  # nobody waits any more on a loop that is closed
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(completed)
            try:
                yield from waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        return super().wait()

    def set_exception(self, result: Any) -> None:
        """Completes the future with an exception, of which each wait raises a copy."""
        if not isinstance(result, Exception):
            raise TypeError(f"a future fails with an exception, not with {result!r}")
        _C.future_set_exception(self, kept(result))

    def __reduce__(self) -> Any:
        raise RuntimeError("Can not pickle torch.futures.Future: wait for it and send its value")


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the given futures that is done when all of them are, failed ones included."""
    futures = list(futures)
    collected: Future[list[Future[Any]]] = Future()
    left = len(futures)  # torch's own collection ends with the first failure
    lock = threading.Lock()

    def count(_: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            collected.set_result(futures)

    for future in futures:
        collected._follow(future)
        future.add_done_callback(count)
    if not futures:
        collected.set_result(futures)
    return collected


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all of them. Raises the first error that comes, without waiting for the rest."""
    futures = list(futures)
    first_end: Future[None] = Future()
    for future in futures:
        first_end._follow(future)
    inner = _collection_of_torch(futures)
    inner.add_done_callback(lambda _: first_end.set_result(None))
    first_end.wait()
    return inner.wait() and [future.wait() for future in futures]


_collection_of_torch: Callable[[list[Any]], Any] = torch._C._collect_all


def _collect_all(futures: list[Any]) -> Any:
    """What `torch.futures.collect_all` and `torch.futures.wait_all` call. A collection of futures of calls is one, too:
    Ctrl-C ends a wait for it, and it does not use up the threads of a worker."""
    futures = list(futures)
    inner = _collection_of_torch(futures)
    if not any(isinstance(future, Future) for future in futures):
        return inner
    collected: Future[Any] = Future()
    for future in futures:
        collected._follow(future)

    def complete(done: Any) -> None:
        try:
            value = done.value()
        except Exception as error:
            collected.set_exception(error)
        else:
            collected.set_result(value)

    inner.add_done_callback(complete)
    return collected


torch._C._collect_all = _collect_all
