"""Calls of methods by a reference, in parts."""

from collections.abc import Callable
from typing import Any

from gradwire._functions import shown_as
from gradwire.compat._refused import getter_of
from gradwire.compat.rpc._rref import RRef, _Proxy
from gradwire.compat.rpc.api import remote, rpc_async, rpc_sync
from gradwire.compat.rpc.constants import UNSET_RPC_TIMEOUT
from gradwire.functions import async_execution

__all__ = ["UNSET_RPC_TIMEOUT", "RRefProxy", "rpc_async"]


class RRefProxy(_Proxy):
    """Turns every attribute into a method that `rpc_api` (rpc_sync, rpc_async or remote) runs on the owner."""

    def __init__(self, rref: RRef[Any], rpc_api: Callable[..., Any], timeout: float = UNSET_RPC_TIMEOUT) -> None:
        modes = {rpc_sync: "sync", rpc_async: "async", remote: "remote"}
        if rpc_api not in modes:
            raise ValueError(f"rpc_api must be rpc_sync, rpc_async or remote, not {rpc_api!r}")
        super().__init__(rref, modes[rpc_api], timeout)


def _invoke_rpc(
    rref: RRef[Any], rpc_api: Callable[..., Any], func_name: str, timeout: float, *args: Any, **kwargs: Any
) -> Any:
    return getattr(RRefProxy(rref, rpc_api, timeout), func_name)(*args, **kwargs)


@shown_as(1)
def _local_invoke(rref: RRef[Any], func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(rref.local_value(), func_name)(*args, **kwargs)


@async_execution
def _local_invoke_async_execution(
    rref: RRef[Any], func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return getattr(rref.local_value(), func_name)(*args, **kwargs)


__getattr__ = getter_of(__name__)
