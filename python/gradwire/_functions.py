"""Functions by name: how the callee finds what its caller means."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from gradwire.errors import Error

F = TypeVar("F", bound=Callable[..., Any])


def resolve(module: str, qualified: str) -> tuple[bool, Any]:
    """(True, function), or (False, why there is none). Raises what importing the module raises."""
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return False, f"{_missing(module, qualified)}: {error}"
    for part in qualified.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            return False, f"{_missing(module, qualified)}: its {module!r} has no {part!r}"
    return True, found


def call_builtin(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """For builtins that look at the frame of their caller, as eval() does: C++ has none."""
    return function(*args, **(kwargs or {}))


def _missing(module: str, qualified: str) -> str:
    return (
        f"the callee has no function {module}.{qualified}. The RPC pickler does not serialize a function's code: "
        f"functions are looked up by module and name, so the same module must be importable on both workers"
    )


def refusal(function: Any) -> Exception:
    """Why a function that its own name does not lead to cannot be sent."""
    name = f"{function.__module__}.{function.__qualname__}"
    if "<locals>" in name or "<lambda>" in name:
        why = "it is defined inside another function or is a lambda, and the callee could not find it"
    else:
        why = "that name leads to nothing, or to another object, on this worker"
    return Error(f"cannot send the function {name}: functions travel by module and name, and {why}")


def shown_as(name: str | int) -> Callable[[F], F]:
    """What errors call a function of this package that runs for a user's: a text, or the argument that holds it."""

    def mark(function: F) -> F:
        function._shown_as = name  # type: ignore[attr-defined]
        return function

    return mark


class Later:
    """What a function has returned whose answer is to be the value of a future."""

    __slots__ = ("future",)

    def __init__(self, future: Any) -> None:
        self.future = future


def call_method(value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`value.name(*args, **kwargs)`, as a callee of its own would be answered: marked methods give a `Later`."""
    method = getattr(value, name)
    if not callable(method):
        raise TypeError(
            f"'{name}' of the {type(value).__qualname__} is of type {type(method).__qualname__} and no method: what a "
            "proxy names is called on the owner. A function that takes the reference can read it there"
        )
    result = method(*args, **kwargs)
    return Later(result) if hasattr(method, "_async_execution") else result
