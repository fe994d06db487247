"""Registers the back end FAULTY_TENSORPIPE, whose calls fail or are late on purpose.

Importing this rebuilds BackendType: programs that do not want it must not import it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire import backends
from gradwire.options import TensorPipeRpcBackendOptions

__all__ = ["FaultyTensorPipeRpcBackendOptions"]

# A kind of message, as programs name it -> functions that carry it here, and whether the callee keeps the result.
_PYTHON, _OPERATORS, _SCRIPTS = "py.call", "aten.*", "script.*"
_MESSAGES: dict[str, list[tuple[str, bool | None]]] = {
    "PYTHON_CALL": [(_PYTHON, False)],
    "PYTHON_REMOTE_CALL": [(_PYTHON, True)],
    "SCRIPT_CALL": [(_OPERATORS, False), (_SCRIPTS, False)],
    "SCRIPT_REMOTE_CALL": [(_OPERATORS, True), (_SCRIPTS, True)],
    "PYTHON_RREF_FETCH_CALL": [("rref.fetch", None)],
    "SCRIPT_RREF_FETCH_CALL": [("rref.fetch", None)],
    "RREF_FORK_REQUEST": [("rref.add", None)],
    "RREF_CHILD_ACCEPT": [],  # nobody waits for a fork to be accepted here
    "RREF_USER_DELETE": [("rref.drop", None)],
    "CLEANUP_AUTOGRAD_CONTEXT_REQ": [("autograd.release", None)],
}


class FaultyTensorPipeRpcBackendOptions(TensorPipeRpcBackendOptions):
    """Options of FAULTY_TENSORPIPE.

    Args:
        messages_to_fail: kinds of messages whose sending fails, each `num_fail_sends` times.
        messages_to_delay: seconds by which the callee is late to begin with messages of a kind.
        num_fail_sends: see `messages_to_fail`.
        options: as of TensorPipeRpcBackendOptions.
    """

    def __init__(
        self,
        *,
        messages_to_fail: Sequence[str] = (),
        messages_to_delay: Mapping[str, float] | None = None,
        num_fail_sends: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.messages_to_fail = list(messages_to_fail)
        self.messages_to_delay = dict(messages_to_delay or {})
        self.num_fail_sends = num_fail_sends
        for message in (*self.messages_to_fail, *self.messages_to_delay):
            if message not in _MESSAGES:
                raise ValueError(f"there is no kind of message {message!r}; the kinds are {', '.join(_MESSAGES)}")

    def faults(self) -> list[tuple[str, bool | None, int, float]]:
        """(function, whether its result is kept, sends that fail, delay in seconds)"""
        fail = [
            (function, kept, self.num_fail_sends, 0.0)
            for message in self.messages_to_fail
            for function, kept in _MESSAGES[message]
        ]
        delay = [
            (function, kept, 0, seconds)
            for message, seconds in self.messages_to_delay.items()
            for function, kept in _MESSAGES[message]
        ]
        return fail + delay


backends.register_backend("FAULTY_TENSORPIPE", FaultyTensorPipeRpcBackendOptions, backends.init_tensorpipe)
