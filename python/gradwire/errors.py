"""Errors: what gradwire raises, and how an exception crosses from one worker to another."""

import contextlib
import pickle
import sys
import traceback

_MOST_PICKLED_BYTES = 64 * 1024


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


def _type_name(cls: type) -> str:
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def _pickled(exception: BaseException) -> bytes:
    """The exception's pickle, or nothing when its caller could not raise it anyway."""
    # Neither exits nor interrupts of the callee end the caller, and a library's error there is none of this call.
    if not isinstance(exception, Exception) or (
        isinstance(exception, Error) and not isinstance(exception, RemoteError)
    ):
        return b""
    try:
        data = pickle.dumps(exception)
        copy = pickle.loads(data)
    except Exception:
        return b""
    return data if type(copy) is type(exception) and len(data) <= _MOST_PICKLED_BYTES else b""


def describe(exception: BaseException, report: bool) -> tuple[str, str, str, bytes]:
    """(text, type name, traceback, pickle) of an exception; `report` prints it to sys.stderr as well."""
    # Two frames at most are the library's own; a user's traceback begins at the user's function.
    lines = traceback.format_exception(exception)
    exception.__traceback__ = None  # frames hold a user's locals
    if getattr(type(exception), "_is_double", False) and exception.__cause__ is not None:
        exception = exception.__cause__  # its type is known to others
    if report:
        with contextlib.suppress(Exception):
            print("".join(lines), end="", file=sys.stderr, flush=True)
    try:
        text = str(exception)
    except Exception:
        text = "an exception whose text cannot be made"
    return text, _type_name(type(exception)), "".join(lines), _pickled(exception)


def _restored(pickled: bytes, type_name: str) -> Exception | None:
    try:
        exception = pickle.loads(pickled)
    except Exception:
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
        exception.add_note(f"raised {where}:\n{remote_traceback.rstrip()}")
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


def _double(exception: Exception, text: str) -> Exception:
    """An exception of the same type that is a RuntimeError too and has this text."""
    double: Exception
    try:
        cls = _both_type(type(exception))
        double = cls.__new__(cls, *exception.args)
        double.args = exception.args
        double.__dict__.update(exception.__dict__, _text=text)
    except TypeError:  # layouts that do not go together
        double = RuntimeError(f"{_type_name(type(exception))}: {text}")
        for note in getattr(exception, "__notes__", ()):
            double.add_note(note)
    return double


def both(exception: BaseException) -> BaseException:
    """What a callback has raised, as an exception that is a RuntimeError too; the original is its cause."""
    trace = "".join(traceback.format_exception(exception)).rstrip()
    exception.__traceback__ = None  # futures outlive the frames
    if not isinstance(exception, RuntimeError) and isinstance(exception, Exception):
        double = _double(exception, str(exception))
        double.__cause__ = exception
        exception = double
    exception.add_note(f"raised in a callback:\n{trace}")
    return exception


def rebuild_of_pass(
    code: str, text: str, worker: str, type_name: str, remote_traceback: str, pickled: bytes
) -> Exception:
    """What a failed backward pass raises: as rebuild(), a RuntimeError in any case, and always with the whole text."""
    exception = rebuild(code, text, worker, type_name, remote_traceback, pickled)
    return exception if code != "Remote" or text in str(exception) else _double(exception, text)
