"""Stands where `torch.distributed.rpc` is."""

from typing import Any

from gradwire import _default, backends
from gradwire._store import open_store
from gradwire.compat._refused import getter_of
from gradwire.compat.rpc import (
    _groups,
    api,
    backend_registry,
    constants,
    functions,
    internal,
    options,
    rref_proxy,
    server_process_global_profiler,
)
from gradwire.compat.rpc._agent import RpcAgent, TensorPipeAgent, enable_gil_profiling
from gradwire.compat.rpc._rref import PyRRef, RRef
from gradwire.compat.rpc.api import (
    _delete_all_user_and_unforked_owner_rrefs,
    _destroy_rref_context,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _reset_current_rpc_agent,
    _rref_context_get_debug_info,
    _set_and_start_rpc_agent,
    get_rpc_timeout,
    get_worker_info,
    logger,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from gradwire.compat.rpc.backend_registry import (
    backend_registered,
    construct_rpc_backend_options,
    init_backend,
    register_backend,
)
from gradwire.compat.rpc.constants import (
    _DEFAULT_INIT_METHOD,
    _DEFAULT_NUM_WORKER_THREADS,
    _DEFAULT_RPC_TIMEOUT_SEC,
    _UNSET_RPC_TIMEOUT,
)
from gradwire.compat.rpc.options import (
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
    _is_tensorpipe_available,
    _TensorPipeRpcBackendOptionsBase,
)
from gradwire.errors import Error
from gradwire.rpc import WorkerInfo, _set_rpc_timeout, is_available

__all__ = [
    "_DEFAULT_INIT_METHOD",
    "_DEFAULT_NUM_WORKER_THREADS",
    "_DEFAULT_RPC_TIMEOUT_SEC",
    "_UNSET_RPC_TIMEOUT",
    "BackendType",
    "PyRRef",
    "RRef",
    "RpcAgent",
    "RpcBackendOptions",
    "TensorPipeAgent",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "_TensorPipeRpcBackendOptionsBase",
    "_delete_all_user_and_unforked_owner_rrefs",
    "_destroy_rref_context",
    "_get_current_rpc_agent",
    "_is_current_rpc_agent_set",
    "_is_tensorpipe_available",
    "_reset_current_rpc_agent",
    "_rref_context_get_debug_info",
    "_set_and_start_rpc_agent",
    "_set_rpc_timeout",
    "_utils",
    "api",
    "backend_registered",
    "backend_registry",
    "constants",
    "construct_rpc_backend_options",
    "enable_gil_profiling",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "init_backend",
    "init_rpc",
    "internal",
    "is_available",
    "logger",
    "options",
    "register_backend",
    "remote",
    "rpc_async",
    "rpc_sync",
    "rref_proxy",
    "server_process_global_profiler",
    "shutdown",
]


_utils = _groups

_get_refused = getter_of(__name__)


def __getattr__(name: str) -> Any:
    return backends.BackendType if name == "BackendType" else _get_refused(name)


def init_rpc(
    name: str,
    backend: backends.Backend | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Starts this process's worker and waits until the whole group is there."""
    backend, options = backends.choose(backend, rpc_backend_options)
    _refuse_second()
    limit_s = backends.init_limit_s(options.rpc_timeout)
    store, rank, size = open_store(options.init_method, rank, world_size, limit_s)
    _init_rpc_backend(backend, store, name, rank, size, options)


def _refuse_second() -> None:
    if _default.worker is not None:
        raise Error("RPC is already initialized in this process: call shutdown() before init_rpc()")


def _init_rpc_backend(
    backend: Any = None,
    store: Any = None,
    name: str | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: Any = None,
) -> None:
    """Starts a worker that meets the others in `store`."""
    _refuse_second()
    agent = backend_registry.init_backend(
        backends.BackendType.TENSORPIPE if backend is None else backend,
        store=store,
        name=name,
        rank=rank,
        world_size=world_size,
        rpc_backend_options=rpc_backend_options,
    )
    api._init_rpc_states(agent)


def _get_debug_info() -> dict[str, str]:
    """What is going on in this process's worker, by name."""
    from gradwire.compat import autograd

    passes = {name: str(value) for name, value in autograd._get_debug_info().items()}
    return {**_rref_context_get_debug_info(), **_get_current_rpc_agent().get_debug_info(), **passes}
