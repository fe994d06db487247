"""Stands where `torch.distributed.autograd` is."""

from typing import Any

from gradwire import _C, _default
from gradwire.autograd import backward, get_gradients, is_available
from gradwire.compat._refused import getter_of
from gradwire.errors import Error

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


class DistAutogradContext:
    """What a context has recorded on this worker."""

    def __init__(self, context_id: int) -> None:
        self._id = context_id

    def _context_id(self) -> int:
        return self._id

    def _send_functions(self) -> dict[int, Any]:
        return _C.inspect_context(_default.required(), self._id)[0]

    def _recv_functions(self) -> dict[int, Any]:
        return _C.inspect_context(_default.required(), self._id)[1]

    def _known_worker_ids(self) -> set[int]:
        return _C.inspect_context(_default.required(), self._id)[2]


class context:
    """A context for the calls of this thread inside `with`; gives its id. Contexts do not nest."""

    def __enter__(self) -> int:
        self.autograd_context = _new_context()
        return self.autograd_context._context_id()

    def __exit__(self, *error: object) -> None:
        _release_context(self.autograd_context._context_id())


# What held before each context of _new_context, until it is released.
_outer: dict[int, _C.Surroundings | None] = {}


def _init(worker_id: int) -> None:
    """For programs that start an agent by hand and call this first: the worker brings its autograd along."""


def _new_context() -> DistAutogradContext:
    worker = _default.required()
    if _C.current_context(worker) >= 0:
        raise Error("Already have an autograd context id for this thread")
    made = DistAutogradContext(_C.new_context(worker))
    _outer[made._id] = _C.surroundings.get(None)
    _C.surroundings.set(_C.inside(worker, made._id))
    return made


def _current_context() -> DistAutogradContext:
    found = _C.current_context(_default.required())
    if found < 0:
        raise Error("no autograd context is current on this thread")
    return DistAutogradContext(found)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    _is_valid_context(context_id)
    return DistAutogradContext(context_id)


def _is_valid_context(context_id: int) -> None:
    """Raises when this worker does not know the context."""
    if not _C.knows_context(_default.required(), context_id):
        raise Error(f"Could not find autograd context with id: {context_id}")


def _release_context(context_id: int) -> None:
    worker = _default.required()
    outer = _outer.pop(context_id, None)
    if _C.current_context(worker) == context_id:
        _C.surroundings.set(outer)
    _C.release_context(worker, context_id)


def _get_max_id() -> int:
    return _C.max_context_id(_default.required())


def _get_debug_info() -> dict[str, int]:
    counts = _default.required().counts()
    return {
        "num_current_backward_passes": counts["backward_passes"],
        "num_autograd_contexts": counts["autograd_contexts"],
    }


__getattr__ = getter_of(__name__)
