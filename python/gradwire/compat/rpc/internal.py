"""Pickling as calls do it, and names of calls for profiles."""

import collections
import enum
from collections.abc import Callable
from typing import Any

import torch

from gradwire import _pickling

__all__ = ["PythonUDF", "RPCExecMode", "RemoteException", "deserialize", "serialize"]

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
        return _pickling.dumps_inside(obj)

    def deserialize(self, binary_data: bytes, tensor_table: list[torch.Tensor]) -> Any:
        return _pickling.loads_inside(memoryview(binary_data), tensor_table)

    def _register_reducer(self, obj_class: type, reducer: Callable[[Any], Any]) -> None:
        """Pickles objects of exactly this class, in calls, as `reducer` says."""
        _pickling.reducers[obj_class] = reducer


_internal_rpc_pickler = _InternalRPCPickler()


def serialize(obj: Any) -> tuple[bytes, list[torch.Tensor]]:
    return _internal_rpc_pickler.serialize(obj)


def deserialize(binary_data: bytes, tensor_table: list[torch.Tensor]) -> Any:
    return _internal_rpc_pickler.deserialize(binary_data, tensor_table)


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
