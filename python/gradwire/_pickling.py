"""Pickles whose tensors, remote references and large buffers travel beside them, in the tables of their message.

A pickle on the wire is: number of out-of-band buffers (u32), the index of each in the tensor table (u32), the pickle.
"""

import io
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from gradwire._C import Reference

_FEW_BYTES = 1024  # smaller buffers stay in the pickle


class _Reading(threading.local):
    """The tables of the message that this thread unpickles."""

    tensors: list[torch.Tensor]
    references: list[Reference]


_reading = _Reading()

# How compat pickles objects of a class, in calls alone.
reducers: dict[type, Callable[[Any], Any]] = {}


def _tensor(index: int) -> torch.Tensor:
    return _reading.tensors[index]


def _parameter(index: int) -> torch.Tensor:
    return _as_type(torch.nn.Parameter, _reading.tensors[index])


def _reference(index: int) -> Reference:
    return _reading.references[index]


def _script_module(saved: bytes | bytearray | memoryview) -> torch.jit.ScriptModule:
    made: torch.jit.ScriptModule = torch.jit.load(io.BytesIO(saved))  # type: ignore[no-untyped-call]
    return made


def _as_type(cls: type[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    if tensor.grad_fn is None and (tensor.requires_grad or issubclass(cls, torch.nn.Parameter)):  # a leaf stays one
        made: torch.Tensor = torch.Tensor._make_subclass(cls, tensor.detach(), tensor.requires_grad)
        return made
    return tensor.as_subclass(cls)  # keeps the edge of the graph


def _subclass(cls: type[torch.Tensor], tensor: torch.Tensor, attributes: dict[str, Any]) -> torch.Tensor:
    made = tensor
    if tensor.grad_fn is None and tensor.requires_grad and not issubclass(cls, torch.nn.Parameter):
        try:
            tensor.__class__ = cls  # no copy would keep the note that its history ends here (docs/autograd.md)
        except TypeError:  # of another layout, by slots
            made = tensor.as_subclass(cls)
    else:
        made = _as_type(cls, tensor)
    made.__dict__.update(attributes)
    return made


class _Tables:
    """What a pickle adds to the tables of its message."""

    def __init__(self, first_tensor: int = 0, first_reference: int = 0) -> None:
        self.first_tensor = first_tensor
        self.first_reference = first_reference
        self.tensors: list[torch.Tensor] = []
        self.references: list[Reference] = []
        self.buffers: list[int] = []

    def add_tensor(self, tensor: torch.Tensor) -> int:
        self.tensors.append(tensor)
        return self.first_tensor + len(self.tensors) - 1

    def add_reference(self, reference: Reference) -> int:
        self.references.append(reference)
        return self.first_reference + len(self.references) - 1

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True leaves it in the pickle."""
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < _FEW_BYTES or raw.readonly:
            return True
        self.buffers.append(self.add_tensor(torch.frombuffer(raw, dtype=torch.uint8)))
        return False


class _Writing(threading.local):
    """The tables of the message that this thread pickles."""

    tables: _Tables | None = None


_writing = _Writing()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tables: _Tables) -> None:
        # Not a method of this object: a cycle would keep the tensors until the next garbage collection.
        super().__init__(file, protocol=5, buffer_callback=tables.take_buffer)
        self.tables = tables

    def reducer_override(self, value: Any) -> Any:
        cls = type(value)
        if cls in reducers:
            return reducers[cls](value)
        if cls is torch.Tensor:
            return _tensor, (self.tables.add_tensor(value),)
        if cls is torch.nn.Parameter:
            return _parameter, (self.tables.add_tensor(value),)
        if isinstance(value, Reference):
            return _reference, (self.tables.add_reference(value),)
        if isinstance(value, torch.Tensor) and _is_plain_subclass(cls):
            return _subclass, (cls, value.as_subclass(torch.Tensor), dict(value.__dict__))
        if isinstance(value, torch.jit.ScriptModule):
            saved = io.BytesIO()
            torch.jit.save(value, saved)
            return _script_module, (pickle.PickleBuffer(saved.getbuffer()),)
        if _is_read_only_array(value):
            return value.copy(order="K").__reduce_ex__(5)
        return NotImplemented


def _is_read_only_array(value: Any) -> bool:
    """One of numpy's, whose pickle would be read-only as well: but what arrives is the receiver's own."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and not value.flags.writeable


def _is_plain_subclass(cls: type[torch.Tensor]) -> bool:
    """Whether its data is a tensor's own: neither a wrapper around others nor with ideas of its own about pickling."""
    return (
        getattr(cls, "__torch_dispatch__", None) is torch.Tensor.__dict__.get("__torch_dispatch__", None)
        or getattr(cls, "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl
    ) and cls.__reduce_ex__ is torch.Tensor.__reduce_ex__


def dumps(value: object, first_tensor: int, first_reference: int) -> tuple[bytes, list[torch.Tensor], list[Reference]]:
    """The framed pickle, and what is to be appended to a message's tables, which hold that much already."""
    tables = _Tables(first_tensor, first_reference)
    return _dump(value, tables), tables.tensors, tables.references


def _dump(value: object, tables: _Tables) -> bytes:
    file = io.BytesIO()
    outer = _writing.tables
    _writing.tables = tables
    try:
        _Pickler(file, tables).dump(value)
    finally:
        _writing.tables = outer
    buffers = tables.buffers
    head = struct.pack(f"<{1 + len(buffers)}I", len(buffers), *buffers)
    return head + file.getbuffer()


def is_inside_call() -> bool:
    """Whether this thread is pickling a message."""
    return _writing.tables is not None


def dumps_inside(value: object) -> tuple[bytes, list[torch.Tensor]]:
    """A framed pickle for a part of a message that is being pickled on this thread, and the tensors of that part.

    References join the message's; outside of one they cannot be pickled.
    """
    message = _writing.tables
    tables = _Tables()
    if message is not None:
        tables.references, tables.first_reference = message.references, message.first_reference
    data = _dump(value, tables)
    if message is None and tables.references:
        for reference in tables.references:
            reference._check_usable()
        raise RuntimeError("an RRef travels only as an argument or result of a call, and no call is being pickled")
    return data, tables.tensors


def loads_inside(data: memoryview, tensors: list[torch.Tensor]) -> Any:
    """The value of such a part, while its message is unpickled on this thread."""
    return loads(data, tensors, getattr(_reading, "references", []))


def loads(data: memoryview, tensors: list[torch.Tensor], references: list[Reference]) -> Any:
    """The value of a framed pickle, with the tables of its message."""
    (count,) = struct.unpack_from("<I", data)
    buffers = [tensors[index].numpy().data for index in struct.unpack_from(f"<{count}I", data, 4)]
    outer = getattr(_reading, "tensors", []), getattr(_reading, "references", [])
    _reading.tensors, _reading.references = tensors, references
    try:
        return pickle.loads(data[4 + 4 * count :], buffers=buffers)
    finally:
        _reading.tensors, _reading.references = outer
