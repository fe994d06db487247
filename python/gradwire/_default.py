"""The default worker of this process: the one place that keeps it."""

import atexit
import os
from collections.abc import Callable

from gradwire._C import Worker
from gradwire.errors import Error

worker: Worker | None = None

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
    old = set_worker(None)
    if old is not None:
        old.shutdown(graceful=False, timeout=0)


def _forget() -> None:
    """In a forked child: the worker's threads stayed with the parent."""
    old = set_worker(None)
    if old is not None:
        old.abandon()


os.register_at_fork(after_in_child=_forget)
