"""Gatherings and the wait for all, under the names that programs know: by the worker's own."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from gradwire import _default, rpc
from gradwire.errors import Error

Key = tuple[tuple[str, ...], int]  # the names in order, and how many gatherings among them there were before
Take = Callable[[Key, dict[str, Any]], None]

_log = logging.getLogger("gradwire")
_counts: dict[tuple[str, ...], int] = {}
_not_taken: dict[str, str] = {}  # on the leader: what others have told it, by their names


def reset() -> None:
    """Forgets the gatherings of an earlier group."""
    _counts.clear()
    _not_taken.clear()


def broadcast_to_followers(sequence_id: Key, objects_map: dict[str, Any]) -> None:
    _log.debug("all of %s have come, for the %d. time", ", ".join(objects_map), sequence_id[1] + 1)


def _key_of(objects: dict[str, Any]) -> Key:
    names = tuple(sorted(objects))
    number = _counts.get(names, 0)
    _counts[names] = number + 1
    return names, number


def all_gather(obj: Any, worker_names: Iterable[str] | None, timeout: float, take: Take) -> dict[str, Any]:
    """As the worker's `all_gather`, but for what has no timeout: it waits for the others as long as they take, and the
    default timeout is that of this worker's own part in it, its pickling and unpickling."""
    worker = _default.required()
    own_limit = timeout if timeout >= 0 else worker.rpc_timeout()
    names = sorted(set(worker_names)) if worker_names else None
    try:
        objects = worker.all_gather(obj, names, max(timeout, 0.0), "_all_gather", own_limit)
    except Error as error:
        if error.code != "TimedOut":
            raise
        raise Error(f"timed out in _all_gather after {own_limit:.2f} seconds: {error}", "TimedOut") from None
    key = _key_of(objects)
    if worker.info().name != key[0][0]:
        take(key, objects)
    return objects


def wait_all(agent: Any, timeout: float, take: Take) -> None:
    """Until all who live are here and no work is left. What a follower cannot take it tells the leader."""
    everybody = dict.fromkeys(agent.published())
    agent.join(shutdown=True, timeout=timeout)
    key = _key_of(everybody)
    own = agent.info().name
    leader = key[0][0]
    if own == leader:
        return
    try:
        take(key, everybody)
    except Exception as error:
        try:
            rpc.rpc_sync(leader, note_not_taken, args=(own, str(error)))
        except Error as lost:
            _log.debug("worker %r could not be told that this one could not take what was gathered: %s", leader, lost)


def note_not_taken(name: str, why: str) -> None:
    _not_taken[name] = why


def raise_not_taken(timeout: float) -> None:
    """On the leader, once all have taken it, or have left."""
    if _not_taken:
        names = ", ".join(sorted(_not_taken))
        raise Error(
            f"timed out in _all_gather after {timeout:.2f} seconds: {names} did not take the result; the first error "
            f"is: {next(iter(_not_taken.values()))}",
            "TimedOut",
        )
