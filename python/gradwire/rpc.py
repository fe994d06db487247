"""Remote calls and references between the workers of a group.

Each process calls `init_rpc` once, then `rpc_sync`, `rpc_async` and `remote`, and at its end `shutdown`.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch

from gradwire import _C, _default, backends, functions
from gradwire._C import WorkerInfo
from gradwire._rref import RRef
from gradwire._store import open_store
from gradwire.backends import (
    Backend,
    backend_registered,
    construct_rpc_backend_options,
    init_backend,
    register_backend,
)
from gradwire.errors import Error, RemoteError
from gradwire.futures import Future
from gradwire.options import RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = [
    "BackendType",  # noqa: F822
    "Error",
    "Future",
    "RRef",
    "RemoteError",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "add_script_module",
    "all_gather",
    "backend_registered",
    "barrier",
    "construct_rpc_backend_options",
    "counts",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "get_worker_infos",
    "init_backend",
    "init_rpc",
    "is_available",
    "load_functions",
    "on_worker_lost",
    "register_backend",
    "register_function",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
    "unregister_function",
]

sys.modules[f"{__name__}.functions"] = functions  # where programs for torch import it from

UNSET_RPC_TIMEOUT: float = _C.UNSET_TIMEOUT

_log = logging.getLogger("gradwire")

To: TypeAlias = str | int | WorkerInfo
Function: TypeAlias = Callable[..., Any] | str


def __getattr__(name: str) -> Any:
    if name == "BackendType":  # each registration makes a new one
        return backends.BackendType
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_available() -> bool:
    """True: the package does not import without its library."""
    return True


def init_rpc(
    name: str,
    backend: Backend | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Starts this process's worker and waits until the whole group is there.

    Args:
        name: unique in the group; letters, digits, `_`, `:`, `-`, under 128 characters.
        backend: a member of `BackendType`; found by the type of the options when not given.
        rank: 0 to world_size - 1; with `env://` from RANK when not given.
        world_size: how many workers; with `env://` from WORLD_SIZE when not given. A group without a size is open:
            init waits until those who are there know this worker, others join later, and shutdown waits for nobody.
        rpc_backend_options: default timeout, threads, and where to meet (`env://`, `tcp://host:port`, `file://path`).

    Raises:
        Error: the group is not complete within 30 minutes or, where rpc_timeout is not its default, the larger of that
            and 5 s (the text names the missing ranks; a warning does every 30 s), nobody serves the store, two workers
            have one name, or this process has a worker already.
    """
    if not isinstance(name, str):
        raise TypeError(f"init_rpc(): name must be a string, not {name!r}")
    backend, options = backends.choose(backend, rpc_backend_options)
    if _default.worker is not None:
        raise Error("RPC is already initialized in this process: call shutdown() before init_rpc()")
    WorkerInfo(name, rank)  # refuses a bad name before anybody is met
    limit_s = backends.init_limit_s(options.rpc_timeout)
    store, rank, world_size = open_store(options.init_method, rank, world_size, limit_s)
    worker = init_backend(
        backend, store=store, name=name, rank=rank, world_size=world_size, rpc_backend_options=options
    )
    _default.set_worker(worker)
    worker.serve()


def shutdown(graceful: bool = True, timeout: float = 0.0) -> None:
    """Ends this process's worker. Calls are possible again after another `init_rpc`.

    Args:
        graceful: wait until every worker has called shutdown and no call is under way; until then this worker serves.
        timeout: for that wait, in seconds; 0 is for ever. When it has passed the worker ends, and Error names who is
            missing.

    Any thread but those of the worker: Error in a function that serves a call, and in a callback. Of several threads
    that call this the later ones wait for the first; with `graceful=False` they end its wait with an error.
    """
    worker = _default.required()
    _default.refuse_inside_call()
    try:
        worker.shutdown(graceful, timeout)
    finally:
        _default.end(worker)


def get_worker_info(worker_name: str | int | None = None) -> WorkerInfo:
    """Name and id of a worker; of this one when no name is given."""
    worker = _default.required()
    return worker.info() if worker_name is None else worker.find(worker_name)


def get_worker_infos() -> list[WorkerInfo]:
    """Name and id of the workers that are there, by id; a lost one is not."""
    return _default.required().infos()


def on_worker_lost(callback: Callable[[WorkerInfo, str], object]) -> None:
    """Calls `callback(info, reason)` once for each worker that is lost from now on, or has been before.

    A worker that leaves by itself is not lost, nor is anybody once this worker leaves. The callback runs on a thread of
    the worker, one at a time, in the order of the losses; it may make calls. What it raises is logged.
    """

    def tell(info: WorkerInfo, reason: str) -> None:
        try:
            callback(info, reason)
        except Exception:
            _log.exception("the callback of on_worker_lost() failed for worker %r", info.name)

    if not callable(callback):
        raise TypeError(f"on_worker_lost() takes a callable, not {callback!r}")
    _default.required().on_worker_lost(tell)


def counts() -> dict[str, int]:
    """How much of everything this worker has now, to see what is stuck or grows: calls that wait for their reply
    (`pending_calls`) or run here (`serving_calls`), values that others hold (`owned_rrefs`, by so many `forks`),
    references held (`held_rrefs`, `creating_rrefs` of them not confirmed yet), `waiting_fetches`, `autograd_contexts`
    and `backward_passes`."""
    return _default.required().counts()


def all_gather(value: Any, workers: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> dict[str, Any]:
    """What each of the workers has passed, by name, once all of them have called this. No gradients go through it.

    Args:
        value: anything that calls can carry.
        workers: names of those that gather, this one among them; the same everywhere. All of the group when None.
            Several gatherings of one set of workers must be made in the same order by all of them.
        timeout: as of `rpc_sync`; the first of them whose timeout passes ends it for all. The error names who has not
            come; that of a lost worker comes at once.
    """
    return _default.required().all_gather(value, None if workers is None else list(workers), timeout)


def barrier(workers: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> None:
    """Waits until all of the workers, or of the group, have called this. Arguments as of `all_gather`."""
    _default.required().all_gather(None, None if workers is None else list(workers), timeout, "barrier")


def get_rpc_timeout() -> float:
    """The default timeout of calls, in seconds; 0 is none."""
    return _default.required().rpc_timeout()


def _set_rpc_timeout(seconds: float) -> None:
    """Sets the default timeout of calls made from now on; 0 is none."""
    if not seconds >= 0:
        raise ValueError(f"a timeout must be at least 0 seconds, not {seconds}")
    _default.required().set_rpc_timeout(seconds)


def load_functions(path: str) -> None:
    """Loads a shared library of C++ functions that other workers may call here by name.

    It exports `extern "C" void gradwire_register(gradwire::Functions&)`, which adds them. Before init_rpc or after.
    """
    _C.load_functions(path)


def register_function(name: str, function: Callable[..., Any]) -> None:
    """Lets other workers, C++ ones too, call `function` as `name`. Before init_rpc or after.

    Its arguments and result are plain values: None, bool, int, float, complex, str, bytes, tensors, RRefs, and tuples,
    lists and dicts of them. Raises Error for a name that is taken.
    """
    _C.register_function(name, function)


def unregister_function(name: str) -> None:
    """Takes a registered function away again; calls under way go on."""
    _C.unregister_function(name)


def add_script_module(name: str, module: torch.jit.ScriptModule) -> None:
    """Lets other workers call the methods of a script module here, as the functions "script.<name>.<method>".

    They run without Python, on this very module. Script functions need no such step: they are found by their own name.
    """
    _C.add_script_module(name, module)


def rpc_sync(
    to: To,
    func: Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Any:
    """Calls `func(*args, **kwargs)` on another worker and returns the result.

    Args:
        to: name, rank or WorkerInfo of the callee.
        func: a function or class found by module and name on the callee; any other callable, which is pickled; a
            builtin operator such as `torch.add` or a script function, which run there without Python; or the name of a
            C++ function.
        args: positional arguments. Tensors keep layout and strides; they must not change until the call is over.
        kwargs: keyword arguments.
        timeout: seconds; 0 is none. The default, and any negative number, is that of `init_rpc`.

    Raises:
        Error: the worker is unknown, gone or silent, or the arguments cannot travel.
        What the function raised, with the callee's traceback as a note; RemoteError when it cannot be raised here.
    """
    worker = _default.worker
    if worker is None:
        raise _default.not_initialized()
    return worker.call_sync(to, func, args, kwargs, timeout)


def rpc_async(
    to: To,
    func: Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future[Any]:
    """As `rpc_sync`, but returns a future at once. What is wrong with the arguments is raised here, all else by it."""
    worker = _default.worker
    if worker is None:
        raise _default.not_initialized()
    future: Future[Any] = Future()
    future._call = worker.call_async(future, to, func, args, kwargs, timeout)
    return future


def remote(
    to: To,
    func: Function,
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef[Any]:
    """As `rpc_async`, but the result stays on the callee; returns an RRef to it. Errors come at the uses of it."""
    worker = _default.worker
    if worker is None:
        raise _default.not_initialized()
    made: RRef[Any] = worker.remote(to, func, args, kwargs, timeout)
    return made
