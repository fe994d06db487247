"""Pickling as calls do it, and names of calls for profiles."""

import collections
import enum
import struct
from collections.abc import Callable
from typing import Any

import torch

from gradwire import _pickling
from gradwire._functions import Later, shown_as
from gradwire.compat._refused import getter_of
from gradwire.compat.rpc._agent import _get_current_rpc_agent

__all__ = ["PythonUDF", "RPCExecMode", "RemoteException", "_get_current_rpc_agent", "deserialize", "serialize"]

_FRAMED = b"gradwire"  # begins what the pickler here makes; that of a program may make plain pickles

PythonUDF = collections.namedtuple("PythonUDF", ["func", "args", "kwargs"])
RemoteException = collections.namedtuple("RemoteException", ["msg", "exception_type"])


class RPCExecMode(enum.Enum):
    """How a call was made."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class _InternalRPCPickler:
    """Pickles beside whose bytes the tensors stand. References in them join the message that is being made around."""

    def serialize(self, obj: Any) -> tuple[bytes, list[torch.Tensor]]:
        data, tensors = _pickling.dumps_inside(obj)
        return _FRAMED + data, tensors

    def deserialize(self, binary_data: bytes, tensor_table: list[torch.Tensor]) -> Any:
        framed = binary_data.removeprefix(_FRAMED)
        if len(framed) == len(binary_data):
            framed = struct.pack("<I", 0) + binary_data
        return _pickling.loads_inside(memoryview(framed), tensor_table)

    def _register_reducer(self, obj_class: type, reducer: Callable[[Any], Any]) -> None:
        """Pickles objects of exactly this class, in calls, as `reducer` says."""
        _pickling.reducers[obj_class] = reducer


_internal_rpc_pickler = _InternalRPCPickler()


class _Pickled:
    """A call that another pickler than that of calls pickles, while its message is made; arrives unpickled."""

    def __init__(self, pickler: Any, call: PythonUDF) -> None:
        self._pickler = pickler
        self._call = call

    def __reduce_ex__(self, protocol: Any) -> Any:
        return deserialize, tuple(self._pickler.serialize(self._call))


@shown_as(1)
def _run(call: PythonUDF, shown_as: str) -> Any:
    result = call.func(*call.args, **call.kwargs)
    return Later(result) if hasattr(call.func, "_async_execution") else result


def serialize(obj: Any) -> tuple[bytes, list[torch.Tensor]]:
    return _internal_rpc_pickler.serialize(obj)


def deserialize(binary_data: bytes, tensor_table: list[torch.Tensor]) -> Any:
    return _internal_rpc_pickler.deserialize(binary_data, tensor_table)


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"


__getattr__ = getter_of(__name__)
