"""One value from each of several workers to all of them, by way of the first in alphabetical order."""

import threading
from collections.abc import Iterable
from typing import Any

from gradwire import _default, rpc
from gradwire.errors import Error
from gradwire.futures import Future

Key = tuple[tuple[str, ...], int]  # the names in order, and how many gatherings among them there were before


class _Gathering:
    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.complete: Future[None] = Future()  # the leader has all of them; elsewhere: they have come from the leader

    def wait(self, timeout: float) -> bool:
        """False when the time (0 or less: none) has passed first."""
        if timeout <= 0:
            self.complete.wait()
            return True
        timer = threading.Timer(timeout, self._give_up)
        timer.start()
        try:
            self.complete.wait()
            return True
        except TimeoutError:
            return False
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._finish(TimeoutError())

    def set_complete(self) -> None:
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        with _lock:
            if self.complete.done():
                return
            if error is None:
                self.complete.set_result(None)
            else:
                self.complete.set_exception(error)


_lock = threading.RLock()
_counts: dict[tuple[str, ...], int] = {}
_gatherings: dict[Key, _Gathering] = {}


def reset() -> None:
    """Forgets the gatherings of an earlier group."""
    with _lock:
        _counts.clear()
        _gatherings.clear()


def _gathering(key: Key) -> _Gathering:
    with _lock:
        return _gatherings.setdefault(key, _Gathering())


def gather_to_leader(sequence_id: Key, worker_name: str, obj: Any, worker_names: Any = None) -> None:
    """On the leader: a worker's part."""
    gathering = _gathering(sequence_id)
    names = sequence_id[0]
    if worker_name not in names:
        raise Error(f"worker {worker_name!r} is not among those that gather: {', '.join(names)}")
    with _lock:
        gathering.objects[worker_name] = obj
        complete = len(gathering.objects) == len(names)
    if complete:
        gathering.set_complete()


def finish(sequence_id: Key, objects: dict[str, Any]) -> None:
    """On a follower: all parts."""
    gathering = _gathering(sequence_id)
    gathering.objects = objects
    gathering.set_complete()


def all_gather(obj: Any, worker_names: Iterable[str] | None, timeout: float) -> dict[str, Any]:
    from gradwire.compat.rpc import api

    worker = _default.required()
    own = worker.info().name
    every = (info.name for info in worker.infos()) if worker_names is None else worker_names
    names = tuple(sorted(set(every)))
    if own not in names:
        raise Error(f"worker {own!r} is not among those that gather: {', '.join(names)}")
    with _lock:
        number = _counts.get(names, 0)
        _counts[names] = number + 1
    key = names, number
    gathering = _gathering(key)
    leader, *followers = names
    printed = timeout if timeout >= 0 else worker.rpc_timeout()
    expired = Error(f"timed out in _all_gather after {printed:.2f} seconds", "TimedOut")
    try:
        _meet(worker, names, timeout, expired)
        if own != leader:
            rpc.rpc_sync(leader, api._gather_to_leader, args=(key, own, obj, set(names)), timeout=timeout)
            if not gathering.wait(timeout):
                raise expired
            return gathering.objects
        gather_to_leader(key, own, obj)
        if not gathering.wait(timeout):
            raise expired
        _broadcast(key, gathering.objects, followers, timeout, expired)
        return gathering.objects
    finally:
        with _lock:
            _gatherings.pop(key, None)


def _meet(worker: Any, names: tuple[str, ...], timeout: float, expired: Error) -> None:
    """Until all are here, by the worker's own gathering: it ends for all when one of them is lost (M5)."""
    if not hasattr(worker, "all_gather"):
        return  # an agent of the program's own
    try:
        worker.all_gather(None, list(names), timeout, "_all_gather")
    except Error as error:
        raise Error(f"{expired}: {error}", "TimedOut") if error.code == "TimedOut" else error from None


def _broadcast(key: Key, objects: dict[str, Any], followers: list[str], timeout: float, expired: Error) -> None:
    from gradwire.compat.rpc import api

    sent = [
        (name, rpc.rpc_async(name, api._broadcast_to_followers, args=(key, objects), timeout=timeout))
        for name in followers
    ]
    failed = []
    for name, future in sent:
        try:
            future.wait()
        except RuntimeError as error:
            failed.append((name, error))
    if failed:
        names = ", ".join(name for name, _ in failed)
        raise Error(f"{expired}: {names} did not take the result; the first error is: {failed[0][1]}", "TimedOut")
