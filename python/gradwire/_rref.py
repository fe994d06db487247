"""RRef: a reference to a value that lives on its owner."""

from typing import Any, Generic, TypeVar, cast

import torch

from gradwire import _C, _default
from gradwire._functions import call_method, shown_as
from gradwire.errors import Error
from gradwire.futures import Future

T = TypeVar("T")

_UNSET: float = _C.UNSET_TIMEOUT


class RRef(_C.Reference, Generic[T]):
    """A reference to a value on another worker, or here. Made by `remote`, or from a local value by `RRef(value)`.

    RRefs travel as arguments and results of calls and inside them; the value stays where it is, and lives as long as
    any worker holds a reference. They compare by identity.
    """

    def __init__(self, value: T, type_hint: Any = None) -> None:
        kind = type(value) if type_hint is None else type_hint
        super().__init__(_default.required(), value, getattr(kind, "__qualname__", str(kind)))

    @classmethod
    def _of(cls, handle: _C.Handle) -> "RRef[Any]":
        made = _made_class.__new__(_made_class)
        _C.Reference.__init__(made, handle)
        return made

    def to_here(self, timeout: float = _UNSET) -> T:
        """A copy of the value; on its owner the value itself.

        Blocks until the value is made. Raises the error of the call that was to make it, and a timeout's error.
        """
        return cast(T, self._fetch(timeout))

    def local_value(self) -> T:
        """The value itself; only on its owner. Blocks until it is made."""
        return cast(T, self._local(_UNSET))

    def rpc_sync(self, timeout: float = _UNSET) -> Any:
        """A proxy: `rref.rpc_sync().f(x)` runs `value.f(x)` on the owner and returns its result."""
        return _Proxy(self, "sync", timeout)

    def rpc_async(self, timeout: float = _UNSET) -> Any:
        """As `rpc_sync`, but returns a future."""
        return _Proxy(self, "async", timeout)

    def remote(self, timeout: float = _UNSET) -> Any:
        """As `rpc_sync`, but returns an RRef to the result, which stays on the owner."""
        return _Proxy(self, "remote", timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """A backward pass from the value, which must be a scalar that requires grad.

        Args:
            dist_autograd_ctx_id: the distributed autograd context that gets the gradients, on all workers. -1, on the
                owner alone, runs local autograd: gradients go to `.grad`.
            retain_graph: keep the graph for another pass.
        """
        if self.is_owner():
            return _backward_on_owner(self, dist_autograd_ctx_id, retain_graph)
        if dist_autograd_ctx_id == -1:
            raise Error("User RRefs require 'dist_autograd_ctx_id' to be specified")
        sent = (self, dist_autograd_ctx_id, retain_graph)
        _default.required().call_sync(self.owner(), _backward_on_owner, sent, None, _UNSET)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "Can not pickle rref in python pickler: an RRef travels only as an argument or result of a call"
        )


# What calls return and receive: compat puts a class in whose references have more methods.
_made_class: type[RRef[Any]] = RRef


def set_made_class(cls: type[RRef[Any]]) -> None:
    global _made_class
    _made_class = cls


@shown_as("RRef.backward")
def _backward_on_owner(rref: RRef[Any], context_id: int, retain_graph: bool) -> None:
    value = rref.local_value()
    if not isinstance(value, torch.Tensor):
        raise Error("RRef should contain a tensor for .backward()")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
    else:
        _C.backward(_default.required(), context_id, [value], retain_graph)


@shown_as(1)
def _call_on_owner(rref: RRef[Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call_method(rref.local_value(), name, args, kwargs)


# What copying and pickling look for in a proxy itself. Other special methods run on the owner when they are named.
_OF_PROXY = {"__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"}
_OF_PROXY |= {"__getnewargs__", "__getnewargs_ex__", "__getinitargs__"}


class _Proxy:
    """Turns every attribute into a method that runs on the owner; a call of the proxy itself calls the value."""

    __slots__ = ("_mode", "_rref", "_timeout")

    def __init__(self, rref: RRef[Any], mode: str, timeout: float) -> None:
        self._rref = rref
        self._mode = mode
        self._timeout = timeout

    def __getattr__(self, name: str) -> "_Method":
        if name in _OF_PROXY:
            raise AttributeError(name)
        return _Method(self._rref, self._mode, self._timeout, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self._rref, self._mode, self._timeout, "__call__")(*args, **kwargs)


class _Method:
    __slots__ = ("_mode", "_name", "_rref", "_timeout")

    def __init__(self, rref: RRef[Any], mode: str, timeout: float, name: str) -> None:
        self._rref = rref
        self._mode = mode
        self._timeout = timeout
        self._name = name

    def __repr__(self) -> str:
        return f"<method {self._name!r} of {self._rref!r}, not called: what is no method is not read by its name>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        worker = _default.required()
        owner = self._rref.owner()
        sent = (self._rref, self._name, args, kwargs)
        if self._mode == "sync":
            return worker.call_sync(owner, _call_on_owner, sent, None, self._timeout)
        if self._mode == "remote":
            return worker.remote(owner, _call_on_owner, sent, None, self._timeout)
        future: Future[Any] = Future()
        future._call = worker.call_async(future, owner, _call_on_owner, sent, None, self._timeout)
        return future
