"""The default worker of this process: the one place that keeps it."""

import atexit
import os
import threading
from collections.abc import Callable

from gradwire import _C
from gradwire._C import Worker
from gradwire.errors import Error

worker: Worker | None = None

LOOP_THREAD = "gradwire-asyncio"  # runs the coroutines that others call

# What init_rpc makes: compat puts a class in whose workers have more methods.
worker_class: type[Worker] = Worker

# Called when the worker is taken out.
on_end: list[Callable[[], None]] = []


def not_initialized() -> Error:
    return Error("RPC has not been initialized: call gradwire.rpc.init_rpc() first (again, after a shutdown)")


def required() -> Worker:
    """The worker; raises before init_rpc and after shutdown."""
    if worker is None:
        raise not_initialized()
    return worker


def refuse_inside_call() -> None:
    """Raises on the threads that serve calls: what ends the worker would wait for itself there."""
    if _C.is_worker_thread() or threading.current_thread().name == LOOP_THREAD:
        raise Error(
            "shutdown() was called by a function that serves a call, or by a callback: it would wait for itself. Call "
            "it on a thread of the program"
        )


def end(ended: Worker) -> None:
    """Takes a worker out, if it has not been already: another may be in."""
    if worker is ended:
        set_worker(None)


def set_worker(new: Worker | None) -> Worker | None:
    """Puts a worker in; the one that was there."""
    global worker
    old, worker = worker, new
    if old is not None:
        for end in on_end:
            end()
    return old


@atexit.register
def _leave() -> None:
    """A program that ends without shutdown leaves; its threads end before the interpreter does."""
    _C.note_exit()
    old = set_worker(None)
    if old is not None:
        old.shutdown(graceful=False, timeout=0)


def _forget() -> None:
    """In a forked child: the worker's threads stayed with the parent."""
    _C.note_fork()
    old = set_worker(None)
    if old is not None:
        old.abandon()


os.register_at_fork(after_in_child=_forget)
