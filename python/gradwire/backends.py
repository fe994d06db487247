"""Back ends by name: what `init_rpc` starts, and the options that each takes."""

import enum
from collections.abc import Callable
from typing import Any

from gradwire import _C, _default, _device_maps
from gradwire._C import RpcBackendOptions
from gradwire.options import TensorPipeRpcBackendOptions

__all__ = [
    "Backend",
    "backend_registered",
    "construct_rpc_backend_options",
    "init_backend",
    "register_backend",
]


class Backend(enum.Enum):
    """What every member of BackendType is, whichever registration made it."""


# Every registration makes a new one: the members of an enum are fixed. Its base tells what is a member of any of them.
BackendType: Any

_handlers: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def _rebuild() -> None:
    global BackendType
    make: Any = Backend
    BackendType = make("BackendType", {name: name for name in _handlers}, module=__name__)


def backend_registered(backend_name: str) -> bool:
    """Whether a back end has this name."""
    return backend_name in _handlers


def register_backend(
    backend_name: str,
    construct_rpc_backend_options_handler: Callable[..., Any],
    init_backend_handler: Callable[..., Any],
) -> Any:
    """Adds a back end and returns its member of the new BackendType.

    Args:
        backend_name: not in use yet; else RuntimeError.
        construct_rpc_backend_options_handler: makes its options, from the keywords `rpc_timeout` and `init_method` and
            those that the program gives.
        init_backend_handler: starts a worker and returns it, from the keywords `store`, `name`, `rank`, `world_size`
            and `rpc_backend_options`. One that stands on another back end calls `init_backend` with that.
    """
    if backend_registered(backend_name):
        raise RuntimeError(f"RPC backend {backend_name}: already registered")
    _handlers[backend_name] = construct_rpc_backend_options_handler, init_backend_handler
    _rebuild()
    return BackendType[backend_name]


def construct_rpc_backend_options(
    backend: Backend, rpc_timeout: float = 60.0, init_method: str = "env://", **kwargs: Any
) -> Any:
    """Options of a back end; `kwargs` are those that it alone has."""
    construct, _ = _handlers[backend.name]
    return construct(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)


def init_backend(backend: Backend, *args: Any, **kwargs: Any) -> Any:
    """Starts a worker of a back end, which must have been given a store and its place in the group."""
    _, init = _handlers[backend.name]
    return init(*args, **kwargs)


def choose(backend: Any, options: Any) -> tuple[Backend, Any]:
    """Back end and options that init_rpc was asked for: either may be None and is found by the other."""
    if backend is not None and not isinstance(backend, Backend):
        raise TypeError("Argument backend must be a member of BackendType")
    if options is not None and not isinstance(options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if backend is None and options is None:
        backend = BackendType.TENSORPIPE
    if backend is None:
        made_by = [(member, type(construct_rpc_backend_options(member))) for member in BackendType]
        known = [member for member, made in made_by if made is type(options)]  # before those it is a subclass of
        known += [member for member, made in made_by if isinstance(options, made)]
        if not known:
            raise TypeError(f"Could not infer backend for options of type {type(options).__name__}")
        backend = known[0]
    return backend, construct_rpc_backend_options(backend) if options is None else options


def init_limit_s(rpc_timeout: float) -> float:
    """How long init may wait for others; 0 is for ever. Where no limit is written it is longer than a call's."""
    if rpc_timeout == RpcBackendOptions().rpc_timeout:
        return 1800.0
    return max(rpc_timeout, 5.0) if rpc_timeout > 0 else 0.0


def init_tensorpipe(store: Any, name: str, rank: int, world_size: int | None, rpc_backend_options: Any) -> Any:
    """Starts a worker with `TensorPipeRpcBackendOptions`: what the back end of that name does."""
    if not isinstance(rpc_backend_options, TensorPipeRpcBackendOptions):
        raise TypeError("`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`")
    options = rpc_backend_options
    worker = _default.worker_class(
        name=name,
        rank=rank,
        world_size=_C.OPEN_GROUP if world_size is None or world_size < 0 else world_size,
        store=store,
        rpc_timeout=options.rpc_timeout,
        init_timeout=init_limit_s(options.rpc_timeout),
        heartbeat_limit=options.heartbeat_limit,
        num_worker_threads=options.num_worker_threads,
        published=_device_maps.publish(options.device_maps, options.devices),
        faults=options.faults(),
    )
    try:
        # In an open group the workers that a map is for may come later.
        _device_maps.check(worker.published(), names_may_be_unknown=worker.group_is_open())
    except ValueError:
        worker.shutdown(graceful=False, timeout=0.0)
        raise
    return worker


register_backend("TENSORPIPE", TensorPipeRpcBackendOptions, init_tensorpipe)
