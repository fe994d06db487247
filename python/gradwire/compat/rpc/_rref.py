"""RRef with the methods that programs use beyond the documented ones."""

from typing import Any, Generic, TypeVar

import torch

from gradwire import _C, _default, _rref
from gradwire.errors import Error
from gradwire.futures import Future
from gradwire.rpc import UNSET_RPC_TIMEOUT

__all__ = ["PyRRef", "RRef"]

T = TypeVar("T")


_KindOfReference: Any = type(_C.Reference)


class _Kind(_KindOfReference):  # type: ignore[misc]
    """Every reference of gradwire is an RRef, whichever module it was made by."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _rref.RRef) if cls is RRef else super().__instancecheck__(instance)


class RRef(_rref.RRef[T], Generic[T], metaclass=_Kind):
    """A reference to a value on another worker, or here."""

    def __init__(self, value: T, type_hint: Any = None) -> None:
        if _default.worker is None:
            raise Error("Current RPC agent is not set! Did you initialize the RPC framework with init_rpc()?")
        if isinstance(value, torch.jit.ScriptModule) and type_hint is None:
            raise Error(
                "The RRef being created contains a ScriptModule, must provide its ModuleInterface type hint. "
                "Without it, scripts could not call the module's methods."
            )
        super().__init__(value, type_hint)

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        return _Proxy(self, "sync", timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        return _Proxy(self, "async", timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        return _Proxy(self, "remote", timeout)

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        """The type of the value, or a future of it. Asked for once; again when that has failed."""
        from gradwire.compat.rpc import api

        asked = self.__dict__.get("_type_future")
        if asked is None or _has_failed(asked):
            try:
                asked = api.rpc_async(self.owner(), api._rref_typeof_on_owner, args=(self,), timeout=timeout)
            except Exception as error:  # the creation is known to have failed
                asked = Future()
                asked.set_exception(error)
            self._type_future = asked
        return asked.wait() if blocking else asked

    def _get_future(self) -> Future[None]:
        """A future that is done when the value was made, and fails when it never will be."""
        future: Future[None] = Future()
        self._await_creation(future)
        return future

    def _get_profiling_future(self) -> Any:
        return self.__dict__.get("_profiling_future")

    def _set_profiling_future(self, future: Any) -> None:
        self._profiling_future = future

    def _serialize(self) -> Any:
        """The reference as it would travel. Raises what keeps it from that."""
        from gradwire.compat.rpc.internal import serialize

        return serialize(self)

    @staticmethod
    def _deserialize(data: Any) -> "RRef[Any]":
        from gradwire.compat.rpc.internal import deserialize

        made: RRef[Any] = deserialize(*data)
        return made


PyRRef = RRef
_rref.set_made_class(RRef)


def _has_failed(future: Future[Any]) -> bool:
    if not future.done():
        return False
    try:
        future.value()
    except Exception:
        return True
    return False


class _Proxy:
    """Turns every attribute into a method that runs on the owner, once the type of the value is seen to have it."""

    __slots__ = ("_mode", "_rref", "_timeout")

    def __init__(self, rref: RRef[Any], mode: str, timeout: float) -> None:
        self._rref = rref
        self._mode = mode
        self._timeout = timeout

    def __getattr__(self, name: str) -> Any:
        if name in _rref._OF_PROXY:
            raise AttributeError(name)
        return _Checked(self._rref, self._mode, self._timeout, name)


def _require_attribute(kind: type, name: str) -> None:
    if not issubclass(kind, torch.jit.ScriptModule):  # such a class has attributes that only its objects can read
        getattr(kind, name)


class _Checked:
    __slots__ = ("_mode", "_name", "_rref", "_timeout")

    def __init__(self, rref: RRef[Any], mode: str, timeout: float, name: str) -> None:
        self._rref = rref
        self._mode = mode
        self._timeout = timeout
        self._name = name

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from gradwire.compat.rpc import api

        owner = self._rref.owner()
        sent = (self._rref, self._name, args, kwargs)
        if self._mode == "async":
            return api._invoke_rpc(owner, _rref._call_on_owner, api.RPCExecMode.ASYNC, sent, None, self._timeout)
        call = api.rpc_sync if self._mode == "sync" else api.remote
        return call(owner, _rref._call_on_owner, sent, None, self._timeout)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked = self._rref._get_type(timeout=self._timeout, blocking=False)
        if self._mode != "async":
            _require_attribute(asked.wait(), self._name)
            return self._call(args, kwargs)
        result: Future[Any] = Future()

        def call(typed: Future[type]) -> None:
            try:
                _require_attribute(typed.value(), self._name)
                self._call(args, kwargs).add_done_callback(finish)
            except Exception as error:
                result.set_exception(error)

        def finish(called: Future[Any]) -> None:
            try:
                result.set_result(called.value())
            except Exception as error:
                result.set_exception(error)

        asked.add_done_callback(call)
        return result
