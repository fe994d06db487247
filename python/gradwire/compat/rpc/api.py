"""Calls, and the end of a group in terms of functions that programs may replace: each is looked up here when used."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from gradwire import _default, rpc
from gradwire._functions import shown_as
from gradwire.compat._refused import getter_of
from gradwire.compat.rpc import _gather
from gradwire.compat.rpc._agent import TensorPipeAgent, _get_current_rpc_agent
from gradwire.compat.rpc._rref import PyRRef, RRef
from gradwire.compat.rpc.constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from gradwire.compat.rpc.internal import (
    PythonUDF,
    RPCExecMode,
    _build_rpc_profiling_key,
    _internal_rpc_pickler,
    _Pickled,
    _run,
)
from gradwire.errors import Error
from gradwire.futures import Future
from gradwire.rpc import WorkerInfo, get_rpc_timeout, get_worker_info

__all__ = [
    "PyRRef",
    "PythonUDF",
    "RPCExecMode",
    "RRef",
    "WorkerInfo",
    "_build_rpc_profiling_key",
    "_get_current_rpc_agent",
    "get_rpc_timeout",
    "get_worker_info",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("gradwire")

# Whether shutdown only logs that other workers still hold values of this one, and does not raise.
_ignore_rref_leak = True
_default_pickler: Any = _internal_rpc_pickler
_thread_local_var = threading.local()


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler: Any) -> Iterator[None]:
    """Calls of Python functions from inside are pickled by `rpc_pickler.serialize`, on all threads."""
    global _default_pickler
    _default_pickler = rpc_pickler
    try:
        yield
    finally:
        _default_pickler = _internal_rpc_pickler


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """Waits at its end for the calls that rpc_async has made inside, on this thread."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        try:
            torch.futures.wait_all(_thread_local_var.future_list)
        finally:
            del _thread_local_var.future_list


def rpc_async(
    to: rpc.To,
    func: rpc.Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future[Any]:
    """A call whose result the returned future will have."""
    future = rpc.rpc_async(to, *_as_pickled(func, args, kwargs), timeout)
    if hasattr(_thread_local_var, "future_list"):
        _thread_local_var.future_list.append(future)
    return future


@functools.wraps(rpc.rpc_sync, assigned=("__doc__",))
def rpc_sync(
    to: rpc.To,
    func: rpc.Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Any:
    return rpc.rpc_sync(to, *_as_pickled(func, args, kwargs), timeout)


@functools.wraps(rpc.remote, assigned=("__doc__",))
def remote(
    to: rpc.To,
    func: rpc.Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef[Any]:
    made: Any = rpc.remote(to, *_as_pickled(func, args, kwargs), timeout)
    return made  # type: ignore[no-any-return]


def _as_pickled(func: rpc.Function, args: Any, kwargs: Any) -> tuple[rpc.Function, Any, Any]:
    """What is called with what, where a program has put a pickler of its own in."""
    if _default_pickler is _internal_rpc_pickler or not _is_pickled(func):
        return func, args, kwargs
    call = PythonUDF(func, tuple(args or ()), dict(kwargs or {}))
    return _run, (_Pickled(_default_pickler, call), getattr(func, "__qualname__", repr(func))), None


def _is_pickled(func: Any) -> bool:
    """Whether it is neither an operator nor a script nor a function of C++, which run without Python."""
    if isinstance(func, (str, torch.jit.ScriptFunction)):
        return False
    return torch.jit._builtins._find_builtin(func) is None  # type: ignore[no-untyped-call]


def _invoke_rpc(
    to: rpc.To,
    func: rpc.Function,
    rpc_type: RPCExecMode,
    args: Any = None,
    kwargs: Any = None,
    rpc_timeout: float = UNSET_RPC_TIMEOUT,
) -> Future[Any]:
    """The future of a call, whatever `rpc_type` is."""
    return rpc.rpc_async(to, *_as_pickled(func, args, kwargs), rpc_timeout)


def _require_initialized(func: F) -> F:
    """Makes `func` raise Error before init_rpc and after shutdown."""

    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        _default.required()
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _to_worker_info(to: rpc.To) -> WorkerInfo:
    if isinstance(to, WorkerInfo):
        return to
    if not isinstance(to, (str, int)):
        raise ValueError(f"Cannot get WorkerInfo from name {to}")
    return get_worker_info(to)


@shown_as("a method of an RRef")
def _rref_typeof_on_owner(rref: RRef[Any], blocking: bool = True) -> Any:
    kind = type(rref.local_value())
    if blocking:
        return kind
    future: Future[Any] = Future()
    future.set_result(kind)
    return future


def _rref_typeof_on_user(rref: RRef[Any], timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
    future = rpc_async(rref.owner(), _rref_typeof_on_owner, args=(rref,), timeout=timeout)
    return future.wait() if blocking else future


def _is_current_rpc_agent_set() -> bool:
    return _default.worker is not None


def _set_and_start_rpc_agent(agent: Any) -> None:
    _gather.reset()
    _default.set_worker(agent)
    agent.serve()


def _init_rpc_states(agent: Any) -> None:
    _set_and_start_rpc_agent(agent)


def _broadcast_to_followers(sequence_id: Any, objects_map: dict[str, Any]) -> None:
    """What a follower does with what has been gathered."""
    _gather.broadcast_to_followers(sequence_id, objects_map)


def _take(sequence_id: Any, objects_map: dict[str, Any]) -> None:
    _broadcast_to_followers(sequence_id, objects_map)


def _all_gather(obj: Any, worker_names: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> dict[str, Any]:
    """What each of the named workers, or of all, has passed, by name; once all have called this."""
    return _gather.all_gather(obj, worker_names, timeout, _take)


def _barrier(worker_names: Any) -> None:
    """Waits until all of the named workers, or of all, are here."""
    _all_gather(None, worker_names)


def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Waits until all workers who live are here and no work is left; calls are served meanwhile and afterwards."""
    agent = _get_current_rpc_agent()
    if agent.is_static_group:
        _gather.wait_all(agent, timeout, _take)
    else:
        _all_gather(None, timeout=timeout)


def _delete_all_user_and_unforked_owner_rrefs() -> None:
    _default.required().drop_references()


def _destroy_rref_context(ignore_rref_leak: bool) -> None:
    """Drops the references that are held here; raises when others still hold some to values of this worker."""
    _delete_all_user_and_unforked_owner_rrefs()
    _refuse_leaks(_default.required().leaks(), ignore_rref_leak)


def _refuse_leaks(leaks: list[str], ignore: bool) -> None:
    if leaks and not ignore:
        raise Error("Leaking RRef: " + "; ".join(leaks))


def _reset_current_rpc_agent() -> None:
    """Takes this process's worker out; who has kept it can still shut it down."""
    _default.set_worker(None)


def _finalize_shutdown() -> None:
    """The end without waiting for others."""
    shutdown(graceful=False)


def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Ends this process's worker; with `graceful` after everybody's work is done."""
    agent = _get_current_rpc_agent()
    _default.refuse_inside_call()
    leaks: list[str] = []
    begin = time.monotonic()

    def left() -> float:
        return max(timeout - (time.monotonic() - begin), 0.001) if timeout > 0 else timeout

    try:
        if graceful:
            unfinished = _unfinished(agent, timeout)
            _delete_all_user_and_unforked_owner_rrefs()
            if unfinished is not None:
                raise unfinished
            leaks = _leaks_of_all(agent, left)
            _gather.raise_not_taken(timeout)
    finally:
        _default.end(agent)
        agent.shutdown()
    _refuse_leaks(leaks, _ignore_rref_leak)


def _unfinished(agent: Any, timeout: float) -> Exception | None:
    """Waits until no work is left, in the first of the rounds that each worker's shutdown makes, whatever names its
    program uses; why it could not. References are dropped in either case."""
    rounds = agent.rounds
    try:
        if agent.is_static_group:
            _wait_all_workers(timeout)
        if agent.rounds == rounds:  # a program has put something else there
            agent.join(shutdown=True, timeout=timeout)
    except RuntimeError as error:
        return error
    return None


def _leaks_of_all(agent: Any, left: Callable[[], float]) -> list[str]:
    """What other workers hold of this one's when all have dropped what they held; looked at before anybody leaves."""
    if not isinstance(agent, TensorPipeAgent) or not agent.is_static_group:
        return []  # in an open group others may go on
    agent.await_quiet(left())
    leaks = agent.leaks()
    agent.await_quiet(left())
    return leaks


def _rref_context_get_debug_info() -> dict[str, str]:
    counts = _default.required().counts()
    return {
        "num_owner_rrefs": str(counts["owned_rrefs"]),
        "num_forks": str(counts["forks"]),
        "num_pending_users": str(counts["creating_rrefs"]),
        "num_pending_futures": str(counts["waiting_fetches"]),
    }


_get_refused = getter_of(__name__)


def __getattr__(name: str) -> Any:
    if name == "_ALL_WORKER_NAMES":
        return set() if _default.worker is None else set(_default.worker.published())
    return _get_refused(name)
