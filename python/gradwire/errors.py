"""Errors: what gradwire raises, and how an exception crosses from one worker to another."""

import contextlib
import io
import pickle
import sys
import traceback
import types
from typing import Any

import torch

_MOST_PICKLED_BYTES = 64 * 1024

# The fields themselves: a class may refuse their use by name.
_CAUSE: Any = BaseException.__dict__["__cause__"]
_CONTEXT: Any = BaseException.__dict__["__context__"]


class Error(RuntimeError):
    """Any failure of gradwire itself, and the base of `RemoteError`.

    `code` says what can be done about it: Disconnected, Unreachable, TimedOut, Cancelled, Overloaded, UnknownFunction,
    UnknownWorker, Invalid, PermissionDenied, Remote, Internal. `worker` is the worker where it happened, if known.
    """

    def __init__(self, text: str, code: str = "Invalid", worker: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.worker = worker

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.args[0], self.code, self.worker))


class RemoteError(Error):
    """A function failed on its callee with an exception that cannot be raised here as it is.

    An exception that pickles, and whose class exists here, is raised itself instead.
    """

    def __init__(self, text: str, worker: str = "", type_name: str = "", remote_traceback: str = "") -> None:
        super().__init__(text, "Remote", worker)
        self.type_name = type_name
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.args[0], self.worker, self.type_name, self.remote_traceback))


def _plain(text: str) -> str:
    """The text as UTF-8 can carry it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _type_name(cls: type) -> str:
    # A spawned process knows the module of its parent's script under another name.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    return _plain(cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}")


# A user's exceptions may refuse anything, and with any exception: a frozen dataclass refuses its own traceback. Nothing
# of what follows may fail for that, as the caller would wait for ever.


def _text_of(exception: BaseException) -> str:
    try:
        return _plain(str(exception))
    except BaseException:
        return "an exception whose text cannot be made"


def _trace_of(exception: BaseException) -> str:
    try:
        return _plain("".join(traceback.format_exception(exception)))
    except BaseException:
        return f"{_type_name(type(exception))}: its traceback cannot be made\n"


def _without_frames(exception: BaseException) -> None:
    """Takes the frames, which hold a user's locals, out of an exception and of those that led to it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [exception]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        BaseException.with_traceback(one, None)
        left += (_CAUSE.__get__(one), _CONTEXT.__get__(one))
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


def add_note(exception: BaseException, note: str) -> None:
    """Adds a note to an exception of any class."""
    try:
        BaseException.add_note(exception, note)
    except BaseException:
        notes = exception.__dict__.get("__notes__")
        exception.__dict__["__notes__"] = [*notes, note] if isinstance(notes, (list, tuple)) else [note]


def _refuse_gradient(_: object) -> None:
    raise Error(
        "backward comes to a tensor that an exception has brought from another worker, so its gradient cannot go back "
        "there: return it instead of raising it, or detach it first"
    )


def _cut_off(tensor: torch.Tensor) -> torch.Tensor:
    tensor.requires_grad_().register_hook(_refuse_gradient)  # type: ignore[no-untyped-call]
    return tensor


class _Pickler(pickle.Pickler):
    """Of exceptions, which are no part of a graph: a tensor in them that has a history refuses its gradient."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.requires_grad and (not value.is_leaf or value._backward_hooks):
            return _cut_off, (value.detach(),)
        return NotImplemented


def _dumps(exception: BaseException) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(exception)
    return file.getvalue()


def _pickled(exception: BaseException) -> bytes:
    """The exception's pickle, or nothing when its caller could not raise it anyway."""
    # Neither exits nor interrupts of the callee end the caller, and a library's error there is none of this call.
    if not isinstance(exception, Exception) or (
        isinstance(exception, Error) and not isinstance(exception, RemoteError)
    ):
        return b""
    try:
        data = _dumps(exception)
        copy = pickle.loads(data)
    except BaseException:
        return b""
    return data if type(copy) is type(exception) and len(data) <= _MOST_PICKLED_BYTES else b""


def describe(exception: BaseException, heading: str) -> tuple[str, str, str, bytes]:
    """(text, type name, traceback, pickle) of an exception; with a heading it is printed to sys.stderr as well."""
    # Two frames at most are the library's own; a user's traceback begins at the user's function.
    trace = _trace_of(exception)
    _without_frames(exception)
    if getattr(type(exception), "_is_double", False):
        exception = _CAUSE.__get__(exception) or exception  # its type is known to others
    if heading:
        with contextlib.suppress(Exception):
            print(f"{heading}\n{trace}", end="", file=sys.stderr, flush=True)
    return _text_of(exception), _type_name(type(exception)), trace, _pickled(exception)


def _restored(pickled: bytes, type_name: str) -> Exception | None:
    try:
        exception = pickle.loads(pickled)
    except BaseException:
        return None
    return exception if isinstance(exception, Exception) and _type_name(type(exception)) == type_name else None


def rebuild(code: str, text: str, worker: str, type_name: str, remote_traceback: str, pickled: bytes) -> Exception:
    """The exception that a failed call raises."""
    if code != "Remote":
        return Error(text, code, worker)
    where = f"on worker {worker!r}" if worker else "on its worker"
    exception = _restored(pickled, type_name) if pickled else None
    if exception is None:
        if type_name and "::" not in type_name:
            text = f"the function failed {where}. Original exception on remote side was {type_name}: {text}"
        exception = RemoteError(text, worker, type_name, remote_traceback)
    if remote_traceback:
        add_note(exception, f"raised {where}:\n{remote_traceback.rstrip()}")
    return exception


_both_types: dict[type[Exception], type[Exception]] = {}


def _both_type(cls: type[Exception]) -> type[Exception]:
    known = _both_types.get(cls)
    if known is None:
        body = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__str__": lambda self: self._text,
            "_is_double": True,
        }
        bases = (cls,) if issubclass(cls, RuntimeError) else (cls, RuntimeError)
        known = _both_types[cls] = type(cls.__name__, bases, body)
    return known


# Of every exception, or not to be taken over.
_OWN_FIELDS = {"__class__", "__dict__", "__weakref__", "__traceback__", "__context__", "__cause__"}


def _copy_as(cls: type[BaseException], exception: BaseException) -> BaseException:
    """An exception of class `cls` with all that `exception` holds but its frames. Raises what its class refuses."""
    made = cls.__new__(cls, *exception.args)
    if type(made) is not cls:
        raise TypeError(f"{_type_name(cls)} makes objects of another type")
    for owner in type(exception).__mro__:  # what C keeps beside the dictionary, such as errno
        for name, field in vars(owner).items():
            if name not in _OWN_FIELDS and isinstance(field, (types.GetSetDescriptorType, types.MemberDescriptorType)):
                with contextlib.suppress(AttributeError, TypeError):  # unset, or set by __new__ alone
                    field.__set__(made, field.__get__(exception, type(exception)))
    made.__dict__.update(exception.__dict__)
    notes = made.__dict__.get("__notes__")
    if isinstance(notes, list):
        made.__dict__["__notes__"] = list(notes)
    _CAUSE.__set__(made, _CAUSE.__get__(exception))
    return made


def fresh(exception: BaseException) -> BaseException:
    """A copy, for a future to raise while it keeps the original; the original when there can be no copy.

    Each raise leaves its frames in the exception. The future in one of their locals would keep itself alive.
    """
    try:
        return _copy_as(type(exception), exception)
    except BaseException:
        return exception


def kept(exception: Exception) -> BaseException:
    """What a future keeps of an exception that was raised before it was given to it: the same, with frames as text."""
    if exception.__traceback__ is None:
        return exception
    copy = fresh(exception)
    if copy is not exception:
        add_note(copy, f"raised before it was given to a future:\n{_trace_of(exception).rstrip()}")
    return copy


def _double(exception: Exception, text: str) -> Exception:
    """An exception of the same type that is a RuntimeError too and has this text."""
    try:
        double = _copy_as(_both_type(type(exception)), exception)
        double.__dict__["_text"] = text
        assert isinstance(double, Exception)
    except BaseException:  # layouts that do not go together, or a class with ideas of its own
        double = RuntimeError(f"{_type_name(type(exception))}: {text}")
        for note in exception.__dict__.get("__notes__", ()):
            add_note(double, note)
    return double


def both(exception: BaseException, where: str) -> BaseException:
    """What was raised `where`, as an exception that is a RuntimeError too; the original is its cause."""
    trace = _trace_of(exception).rstrip()
    _without_frames(exception)  # futures outlive them
    if not isinstance(exception, RuntimeError) and isinstance(exception, Exception):
        double = _double(exception, _text_of(exception))
        _CAUSE.__set__(double, exception)
        exception = double
    add_note(exception, f"raised {where}:\n{trace}")
    return exception


def rebuild_of_pass(
    code: str, text: str, worker: str, type_name: str, remote_traceback: str, pickled: bytes
) -> Exception:
    """What a failed backward pass raises: as rebuild(), a RuntimeError in any case, and always with the whole text."""
    exception = rebuild(code, text, worker, type_name, remote_traceback, pickled)
    return exception if code != "Remote" or text in _text_of(exception) else _double(exception, text)
